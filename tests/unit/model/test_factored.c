/* Adafactor: ten steps of transformers', in one piece and in pieces as ranks have them, and of a
 * stack of matrices whose rows are several parameters, as those of experts are. */
#include "tests/unit/golden_model.h"

#include "trainer/ops/ops.h"

enum { MOST = 512 };

struct shape {
    const char *name;
    int64_t rows, cols, height;
};

static const struct shape shapes[] = {
    {"matrix", 12, 21, 12}, {"tall", 24, 7, 24}, {"stack", 10, 6, 5}, {"vector", 33, 0, 33}};

static const float *numbers(struct golden *g, struct ckpt_source *file, int64_t n, const char *what)
{
    int64_t has;
    const float *x = golden_floats(g, file, what, &has);

    assert_int_equal(has, n);
    return x;
}

static void near(const float *got, const float *want, int64_t n, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 2e-6 * (fabs((double)want[i]) + 0.01)))
            fail_msg("%s, element %d: %.9g, %.9g wanted", name, (int)i, (double)got[i],
                     (double)want[i]);
}

/* One parameter's arrays, as one rank or several hold them. */
struct held {
    float  p[MOST], m[MOST], row[3][MOST], col[3][MOST], rms[3];
    double sum[3][MOST], squares[3][2];
};

/* The bands of rows [from, to) that are parameters of their own, of a tensor's matrices. */
struct band {
    int64_t from, to;
};

/* What the rank of so many owns of the band of a matrix. */
static struct op_factored op_of(struct held *h, const struct shape *s, int rank, int ranks,
                                const float *grad, int64_t matrix, struct band b)
{
    int64_t row = matrix * s->height + b.from, rows = b.to - b.from, cols = s->cols ? s->cols : 1;
    int64_t at = row * cols, numel = rows * cols, part = (numel + ranks - 1) / ranks;
    int64_t start = rank * part, n = numel - start < part ? numel - start : part;

    return (struct op_factored){
        .param = h->p + at + start, .grad = grad + at + start, .exp_avg = h->m + at + start,
        .n = n, .start = start, .rows = rows, .cols = s->cols, .height = rows, .above = b.from,
        .tall = s->height, .first = matrix == 0 && b.from == 0, .numel = s->rows * cols,
        .row = h->row[rank] + row, .col = h->col[rank] + matrix * s->cols, .rms = &h->rms[rank],
        .weight_square = &h->squares[rank][0], .update_square = &h->squares[rank][1]};
}

enum { MOST_PARTS = 4 };

/* The parameters of a tensor: one, or two bands of each matrix. */
static int list(struct op_factored f[MOST_PARTS], struct held *h, const struct shape *s, int rank,
                int ranks, const float *grad, bool bands)
{
    double *sum = h->sum[rank];
    int n = 0;

    if (!bands) {
        f[0] = op_of(h, s, rank, ranks, grad, 0, (struct band){0, s->rows});
        f[0].height = f[0].tall = s->height;
        f[0].sum = sum;
        return 1;
    }
    for (int64_t m = 0; m < s->rows / s->height; m++) {
        f[n] = op_of(h, s, rank, ranks, grad, m, (struct band){0, 2});
        f[n + 1] = op_of(h, s, rank, ranks, grad, m, (struct band){2, s->height});
        for (int k = 0; k < 2; k++, n++) {
            f[n].sum = sum;
            sum += f[n].rows + s->cols;
        }
        f[n - 2].beside = f[n - 1].sum + f[n - 1].rows;
    }
    return n;
}

/* One step of what `parts` ranks own of it. */
static void step(struct held *h, struct device *dev, const struct shape *s, int parts, bool bands,
                 const float *grad, double lr, double decay, struct adamw *a)
{
    struct op_factored f[3][MOST_PARTS];
    int n = 0;

    for (int r = 0; r < parts; r++) {
        n = list(f[r], h, s, r, parts, grad, bands);
        for (int k = 0; k < n; k++) {
            f[r][k].lr = lr;
            f[r][k].weight_decay = decay;
            if (isnan(a->adafactor->beta1))
                f[r][k].exp_avg = NULL;
        }
        dev->ops->factored(dev, OP_FACTORED_SUMS, f[r], n, a);
    }
    for (int k = 0; k < MOST; k++)
        for (int r = 1; r < parts; r++)
            h->sum[0][k] += h->sum[r][k];
    for (int r = 1; r < parts; r++)
        h->squares[0][0] += h->squares[r][0];
    for (int r = 0; r < parts; r++) {
        memcpy(h->sum[r], h->sum[0], sizeof h->sum[r]);
        h->squares[r][0] = h->squares[0][0];
        dev->ops->factored(dev, OP_FACTORED_MOMENTS, f[r], n, a);
    }
    for (int r = 1; r < parts; r++)
        h->squares[0][1] += h->squares[r][1];
    for (int r = 0; r < parts; r++) {
        h->squares[r][1] = h->squares[0][1];
        dev->ops->factored(dev, OP_FACTORED_UPDATE, f[r], n, a);
    }
}

static void check(struct golden *g, struct ckpt_source *file, const struct held *h,
                  const struct shape *s, const char *name, int64_t at, bool first)
{
    int64_t numel = s->rows * (s->cols ? s->cols : 1);
    const struct { const char *what; const float *got; int64_t n; } arrays[] = {
        {"p", h->p, numel},
        {s->cols ? "exp_avg_sq_row" : "exp_avg_sq", h->row[0], s->rows},
        {s->cols ? "exp_avg_sq_col" : NULL, h->col[0], s->cols ? s->rows / s->height * s->cols : 0},
        {"RMS", h->rms, 1}, {first ? "exp_avg" : NULL, h->m, numel}};

    for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++) {
        char what[96];

        if (!arrays[k].what)
            continue;
        snprintf(what, sizeof what, "%s.%s.%s.%d", name, s->name, arrays[k].what, (int)at);
        near(arrays[k].got, numbers(g, file, arrays[k].n, what), arrays[k].n, what);
    }
}

/* All cases and shapes; bands: the stack alone. */
static void ten_steps(bool bands)
{
    static const struct { const char *name; struct op_adafactor o; double decay; } cases[] = {
        {"trainer", {1e-30, 1e-3, 1, -0.8, NAN, false, false, false}, 0.1},
        {"relative", {1e-30, 1e-3, 1, -0.8, NAN, true, true, false}, 0},
        {"warm", {1e-30, 1e-3, 0.5, -0.8, NAN, false, true, true}, 0},
        {"first", {1e-8, 1e-2, 1, -0.5, 0.9, true, false, false}, 0},
    };
    struct golden g = {0};
    struct ckpt_source *file = golden_source("safetensors", "tests/golden/optim",
                                             "/matrices.safetensors");

    for (size_t k = 0; k < 4 * 3 * 4; k++) {
        const struct shape *s = &shapes[bands ? 2 : k % 4];
        int parts = 1 + (int)(k / 4) % 3, c = (int)(k / 12);
        int64_t numel = s->rows * (s->cols ? s->cols : 1);
        struct device *dev = cpu_device(parts);
        struct adamw a = {.rule = OP_RULE_ADAFACTOR, .adafactor = &cases[c].o, .grad_scale = 1};
        struct held h = {0};
        char what[64];

        snprintf(what, sizeof what, "start.%s", s->name);
        memcpy(h.p, numbers(&g, file, numel, what), (size_t)numel * sizeof *h.p);
        for (a.step = 1; a.step <= 10; a.step++) {
            snprintf(what, sizeof what, "grad.%s.%d", s->name, (int)a.step);
            step(&h, dev, s, parts, bands, numbers(&g, file, numel, what), 1e-2, cases[c].decay, &a);
            if (a.step <= 2 || a.step == 10)
                check(&g, file, &h, s, cases[c].name, a.step, c == 3);
        }
        device_close(dev);
    }
    ckpt_source_close(file);
    ckpt_arena_release(&g.arena);
}

TEST(ten_steps_are_transformers_however_the_matrix_is_cut) { ten_steps(false); }
TEST(ten_steps_of_several_parameters_are_those_of_their_tensor) { ten_steps(true); }

/* What is not finite steps nothing. */
TEST(a_step_that_is_not_finite_changes_nothing)
{
    static const struct op_adafactor o = {1e-30, 1e-3, 1, -0.8, NAN, false, false, false};
    struct device *dev = cpu_device(1);
    struct op_verdict bad = {.factor = 1};
    struct adamw a = {.rule = OP_RULE_ADAFACTOR, .adafactor = &o, .step = 1, .verdict = &bad};
    struct held h = {.p = {1, 2, 3}}, was = h;
    const float grad[MOST] = {1, INFINITY};

    step(&h, dev, &shapes[0], 2, false, grad, 1, 0, &a);
    assert_memory_equal(&h, &was, sizeof h);
    device_close(dev);
}
