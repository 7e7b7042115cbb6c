/* Muon: ten steps of torch's, in one piece and in pieces as ranks have them. */
#include "tests/unit/golden_model.h"

#include "trainer/ops/ops.h"

enum { MOST = 512 };

static const struct shape { const char *name; int64_t rows, cols; } shapes[] = {
    {"matrix", 12, 21}, {"tall", 24, 7}};

static const struct op_muon plain = {.momentum = 0.95, .eps = 1e-7, .nesterov = true,
                                     .ns_steps = 5, .a = 3.4445, .b = -4.7750, .c = 2.0315};

static const float *numbers(struct golden *g, struct ckpt_source *file, int64_t n, const char *what)
{
    int64_t has;
    const float *x = golden_floats(g, file, what, &has);

    assert_int_equal(has, n);
    return x;
}

static void near(const float *got, const float *want, int64_t n, double most, const char *name)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= most))
            fail_msg("%s, element %d: %.9g, %.9g wanted", name, (int)i, (double)got[i],
                     (double)want[i]);
}

/* One step of what `parts` ranks own of a matrix: p and m are whole. */
static void step(float *p, float *m, const float *grad, struct device *dev, const struct shape *s,
                 int parts, double lr, double decay, const struct adamw *a)
{
    int64_t numel = s->rows * s->cols, part = (numel + parts - 1) / parts;
    float *direction = calloc((size_t)(part * parts), sizeof *direction);
    float *work = calloc((size_t)op_muon_work(s->rows, s->cols), sizeof *work);

    assert_non_null(direction);
    assert_non_null(work);
    for (int pass = OP_MUON_MOMENTUM; pass <= OP_MUON_UPDATE; pass++) {
        for (int r = 0; r < parts; r++) {
            int64_t start = r * part, n = numel - start < part ? numel - start : part;
            struct op_matrix one = {
                .param = p + start, .grad = grad + start, .momentum = m + start, .n = n,
                .start = start, .rows = s->rows, .cols = s->cols, .direction = direction,
                .work = work, .lr = lr, .weight_decay = decay};

            if (pass != OP_MUON_ORTHOGONAL || r == parts - 1)       /* one for all */
                dev->ops->muon(dev, (enum op_muon_part)pass, &one, a);
        }
    }
    free(direction);
    free(work);
}

TEST(ten_steps_are_torch_s_however_the_matrix_is_cut)
{
    static const struct { const char *name; double momentum; bool nesterov; int adjust; } cases[] = {
        {"muon", 0.95, true, OP_MUON_ORIGINAL}, {"moonshot", 0.8, false, OP_MUON_MATCH_RMS_ADAMW}};
    struct golden g = {0};
    struct ckpt_source *file = golden_source("safetensors", "tests/golden/optim",
                                             "/matrices.safetensors");

    for (size_t k = 0; k < 2 * 2 * 3; k++) {
        const struct shape *s = &shapes[k % 2];
        int parts = 1 + (int)(k / 2) % 3, c = (int)(k / 6);
        int64_t numel = s->rows * s->cols;
        struct device *dev = cpu_device(parts);
        struct op_muon o = plain;
        struct adamw a = {.muon = &o, .grad_scale = 1};
        float p[MOST], m[MOST] = {0};
        char what[64];

        o.momentum = cases[c].momentum;
        o.nesterov = cases[c].nesterov;
        o.adjust = cases[c].adjust;
        snprintf(what, sizeof what, "start.%s", s->name);
        memcpy(p, numbers(&g, file, numel, what), (size_t)numel * sizeof *p);
        for (a.step = 1; a.step <= 10; a.step++) {
            snprintf(what, sizeof what, "grad.%s.%d", s->name, (int)a.step);
            step(p, m, numbers(&g, file, numel, what), dev, s, parts, 1e-2, 0.1, &a);
            if (a.step > 2 && a.step < 10)
                continue;
            snprintf(what, sizeof what, "%s.%s.exact.%d", cases[c].name, s->name, (int)a.step);
            near(p, numbers(&g, file, numel, what), numel, 5e-7, what);
            snprintf(what, sizeof what, "%s.%s.p.%d", cases[c].name, s->name, (int)a.step);
            near(p, numbers(&g, file, numel, what), numel, 5e-4, what);     /* bfloat16's noise */
            snprintf(what, sizeof what, "%s.%s.momentum_buffer.%d", cases[c].name, s->name,
                     (int)a.step);
            near(m, numbers(&g, file, numel, what), numel, 5e-7, what);
        }
        device_close(dev);
    }
    ckpt_source_close(file);
    ckpt_arena_release(&g.arena);
}

/* Blocks, not threads, cut the products: large matrices get the same bits from any number; and
 * their singular values, those of random numbers, come near to 1. */
TEST(threads_and_parts_leave_the_bits_alone)
{
    static const struct shape large[] = {{"wide", 300, 700}, {"high", 700, 300}, {"one", 1, 600}};

    uint64_t word = 1;

    for (size_t k = 0; k < sizeof large / sizeof large[0]; k++) {
        const struct shape *s = &large[k];
        size_t n = (size_t)(s->rows * s->cols);
        float *p = calloc(4 * n, sizeof *p), *grad = p + 3 * n, *first = calloc(n, sizeof *first);
        struct adamw a = {.muon = &plain, .grad_scale = 0.5, .step = 1};
        double least = (double)(s->rows < s->cols ? s->rows : s->cols), sum = 0;
        double rate = 1e-2 * sqrt(fmax(1, (double)s->rows / (double)s->cols));

        assert_non_null(p);
        assert_non_null(first);
        for (size_t i = 0; i < n; i++) {
            word = word * 6364136223846793005u + 1442695040888963407u;
            grad[i] = (float)(int32_t)(word >> 32) * 0x1p-31f;
        }
        for (int parts = 1; parts <= 3; parts++) {
            struct device *dev = cpu_device(parts);

            memset(p, 0, 2 * n * sizeof *p);
            step(p, p + n, grad, dev, s, parts, 1e-2, 0, &a);
            if (parts == 1)
                memcpy(first, p, n * sizeof *p);
            assert_memory_equal(p, first, n * sizeof *p);
            device_close(dev);
        }
        for (size_t i = 0; i < n; i++)
            sum += first[i] / rate * first[i] / rate;
        if (!(sum > 0.45 * least && sum < 1.5 * least))
            fail_msg("%s: mean square of its singular values %g", s->name, sum / least);
        free(first);
        free(p);
    }
}

/* What is not finite steps nothing; no gradient moves nothing but by decay. */
TEST(a_step_that_is_not_finite_changes_nothing)
{
    struct device *dev = cpu_device(1);
    struct op_verdict bad = {.factor = 1}, good = {.factor = 1, .finite = 1};
    struct adamw a = {.muon = &plain, .step = 1, .verdict = &bad};
    float p[MOST] = {1, 2, 3}, m[MOST] = {0}, was[MOST], grad[MOST] = {1, INFINITY};

    memcpy(was, p, sizeof p);
    step(p, m, grad, dev, &shapes[0], 2, 1, 0.1, &a);
    assert_memory_equal(p, was, sizeof p);
    grad[0] = grad[1] = 0;
    a.verdict = &good;
    step(p, m, grad, dev, &shapes[0], 2, 0.5, 0.5, &a);
    for (int i = 0; i < 3; i++)
        assert_true(p[i] == was[i] * 0.75f);
    device_close(dev);
}
