/* Projections on the GPU against the CPU: every field, awkward widths, reruns of the same
 * bits. */
#include "tests/gpu/linear_pair.h"

TEST(plain)
{
    static const struct linear_case c[] = {
        {.n = 1, .in = 8, .out = 8},
        {.n = 1, .in = 512, .out = 264, .bias = true},
        {.n = 1, .in = 328, .out = 133, .bias = true, .odd = true},
        {.n = 2, .in = 2056, .out = 57, .bias = true},
        {.n = 4, .in = 4104, .out = 33},
        {.n = 7, .in = 40, .out = 24, .bias = true},
        {.n = 5, .in = 33, .out = 17, .bias = true},
        {.n = 130, .in = 200, .out = 136, .bias = true, .dx_add = true},
        {.n = 257, .in = 512, .out = 384},
        {.n = 300, .in = 65, .out = 520, .bias = true, .in_out = true},
        {.n = 64, .in = 96, .out = 64, .bias = true, .in_out = true, .dx_add = true},
        {.n = 31, .in = 64, .out = 72, .bias = true, .odd = true},
        {.n = 31, .in = 64, .out = 72, .frozen = true, .bias = true},
        {.n = 31, .in = 64, .out = 72, .no_dx = true, .bias = true},
        {.n = 0, .in = 64, .out = 72, .bias = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

TEST(written_gradients)
{
    static const struct linear_case c[] = {
        {.n = 1, .in = 8, .out = 8, .bias = true, .fresh = true},
        {.n = 5, .in = 33, .out = 17, .bias = true, .fresh = true},
        {.n = 130, .in = 200, .out = 136, .bias = true, .dx_add = true, .fresh = true},
        {.n = 257, .in = 512, .out = 384, .fresh = true},
        {.n = 300, .in = 65, .out = 520, .bias = true, .in_out = true, .fresh = true},
        {.n = 31, .in = 64, .out = 72, .bias = true, .odd = true, .fresh = true},
        {.n = 31, .in = 64, .out = 72, .frozen = true, .bias = true, .fresh = true},
        {.n = 40, .in = 64, .out = 48, .bias = true, .drop = 0.1f, .fresh = true},
        {.n = 40, .in = 64, .out = 48, .bias = true, .rank = 8, .fresh = true},
        {.n = 0, .in = 64, .out = 72, .bias = true, .fresh = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

TEST(residual)
{
    static const struct linear_case c[] = {
        {.n = 33, .in = 64, .out = 48, .bias = true, .residual = true},
        {.n = 33, .in = 64, .out = 48, .bias = true, .in_place = true},
        {.n = 33, .in = 64, .out = 48, .in_place = true},
        {.n = 3, .in = 64, .out = 48, .bias = true, .in_place = true},
        {.n = 2, .in = 64, .out = 40, .out_ld = 88, .bias = true},
        {.n = 9, .in = 31, .out = 13, .bias = true, .residual = true, .odd = true},
        {.n = 33, .in = 64, .out = 48, .bias = true, .residual = true, .drop = 0.25f},
        {.n = 9, .in = 30, .out = 13, .residual = true, .drop = 0.5f},
        {.n = 40, .in = 64, .out = 48, .bias = true, .drop = 0.1f, .dx_add = true},
        {.n = 40, .in = 64, .out = 48, .bias = true, .drop = 1.0f},
        {.n = 21, .in = 64, .out = 40, .out_ld = 80},
        {.n = 21, .in = 64, .out = 40, .out_ld = 80, .bias = true, .in_out = true},
        {.n = 21, .in = 64, .out = 13, .out_ld = 31, .bias = true},
    };

    linear_check_all(c, sizeof c / sizeof c[0], 300);
}

TEST(activations)
{
    static const enum op_act acts[] = {OP_ACT_GELU_TANH, OP_ACT_GELU_ERF, OP_ACT_RELU,
                                       OP_ACT_SILU};
    static const struct linear_case relu[] = {
        {.n = 40, .in = 128, .out = 64, .bias = true, .x_act = OP_ACT_RELU, .kept = true},
        {.n = 5, .in = 27, .out = 64, .x_act = OP_ACT_RELU, .kept = true},
        {.n = 40, .in = 128, .out = 64, .x_act = OP_ACT_RELU, .kept = true, .x_drop = 0.25f},
    };
    struct linear_case c[4 * 11 + 3];
    size_t n = 0;

    for (size_t i = 0; i < 4; i += gpu_small() == 2 ? 2 : 1) {
        const struct linear_case by[] = {
            {.n = 40, .in = 64, .out = 128, .bias = true, .act = acts[i]},
            {.n = 40, .in = 64, .out = 128, .bias = true, .act = acts[i], .pre = true},
            {.n = 2, .in = 64, .out = 19, .bias = true, .act = acts[i], .pre = true},
            {.n = 3, .in = 21, .out = 19, .act = acts[i], .pre = true, .odd = true},
            {.n = 40, .in = 64, .out = 128, .bias = true, .act = acts[i], .pre = true,
             .drop = 0.2f},
            {.n = 40, .in = 128, .out = 64, .bias = true, .x_act = acts[i]},
            {.n = 5, .in = 27, .out = 64, .x_act = acts[i]},
            {.n = 40, .in = 128, .out = 64, .bias = true, .x_act = acts[i], .x_drop = 0.3f,
             .drop = 0.1f},
            {.n = 40, .in = 128, .out = 64, .bias = true, .x_act = acts[i], .in_out = true},
            {.n = 40, .in = 128, .out = 64, .bias = true, .x_act = acts[i], .made = true},
            {.n = 5, .in = 27, .out = 64, .x_act = acts[i], .made = true},
        };

        memcpy(c + n, by, sizeof by);
        n += sizeof by / sizeof by[0];
    }
    memcpy(c + n, relu, sizeof relu);
    linear_check_all(c, n + sizeof relu / sizeof relu[0], 300);
}

/* -- sizes of real models: a sample of rows in f64 ---------------------------------------------- */

enum { SAMPLE = 4 };

/* Some rows of an array [n, width] on the GPU against those wanted. */
static void check_rows(struct gpu *g, const struct linear_case *c, const char *what,
                       const struct both *b, const int64_t row[SAMPLE], int64_t width,
                       const double *want)
{
    float *got = gpu_fetch(g, b);
    double most = 1e-30, bound = gpu_bound(g->type);

    for (int64_t i = 0; i < SAMPLE * width; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < SAMPLE * width; i++) {
        double x = (double)got[row[i / width] * width + i % width];

        if (!(fabs(x - want[i]) <= bound * most))
            fail_msg("%s[%lld, %lld] of [%lld, %lld -> %lld] (%s) is %.9g, wanted %.9g", what,
                     (long long)row[i / width], (long long)(i % width), (long long)c->n,
                     (long long)c->in, (long long)c->out, ckpt_dtype_name(g->type), x, want[i]);
    }
    free(got);
}

static void sample_of(int64_t row[SAMPLE], int64_t n)
{
    row[0] = 0;
    row[1] = n / 3;
    row[2] = n / 2 + 1;
    row[3] = n - 1;
}

/* Element (o, i) of W. */
static double weight(const struct linear_case *c, const struct linear_pair *p, int64_t o,
                     int64_t i)
{
    return (double)((float *)p->w.cpu)[c->in_out ? i * c->out + o : o * c->in + i];
}

static void check_out(struct gpu *g, const struct linear_case *c, const struct linear_pair *p)
{
    double *pre = malloc((size_t)(SAMPLE * c->out) * sizeof *pre), slope;
    const float *x = p->x.cpu, *b = p->b.cpu, *residual = p->residual.cpu;
    int64_t row[SAMPLE];

    sample_of(row, c->n);
    for (int64_t s = 0; s < SAMPLE; s++)
        for (int64_t o = 0; o < c->out; o++) {
            double sum = c->bias ? (double)b[o] : 0;

            for (int64_t i = 0; i < c->in; i++)
                sum += (double)x[row[s] * c->in + i] * weight(c, p, o, i);
            pre[s * c->out + o] = sum;
        }
    if (c->pre)
        check_rows(g, c, "pre", &p->pre, row, c->out, pre);
    for (int64_t i = 0; i < SAMPLE * c->out; i++)
        pre[i] = linear_act(c->act, pre[i], &slope) +
                 (c->residual ? (double)residual[row[i / c->out] * c->out + i % c->out] : 0);
    check_rows(g, c, "out", &p->out, row, c->out, pre);
    free(pre);
}

static void check_dx(struct gpu *g, const struct linear_case *c, const struct linear_pair *p)
{
    double *want = malloc((size_t)(SAMPLE * c->in) * sizeof *want), slope;
    const float *dout = p->dout.cpu, *x_pre = p->x_pre.cpu;
    int64_t row[SAMPLE];

    sample_of(row, c->n);
    for (int64_t s = 0; s < SAMPLE; s++)
        for (int64_t i = 0; i < c->in; i++) {
            double sum = 0;

            for (int64_t o = 0; o < c->out; o++)
                sum += (double)dout[row[s] * c->out + o] * weight(c, p, o, i);
            linear_act(c->x_act, (double)x_pre[row[s] * c->in + i], &slope);
            want[s * c->in + i] = sum * slope;
        }
    check_rows(g, c, "dx", &p->dx, row, c->in, want);
    free(want);
}

/* Some rows of W's gradient; recomputed x was rounded to the type. */
static void check_dw(struct gpu *g, const struct linear_case *c, const struct linear_pair *p)
{
    int64_t rows = c->in_out ? c->in : c->out, width = c->in_out ? c->out : c->in;
    double *want = calloc((size_t)(SAMPLE * width), sizeof *want), slope;
    const float *dout = p->dout.cpu, *x = p->back_x.cpu, *x_pre = p->x_pre.cpu;
    const float *before = p->dw.cpu;
    int64_t row[SAMPLE];

    sample_of(row, rows);
    for (int64_t s = 0; s < SAMPLE; s++)
        for (int64_t k = 0; k < c->n; k++)
            for (int64_t j = 0; j < width; j++) {
                int64_t o = c->in_out ? j : row[s], i = c->in_out ? row[s] : j;
                double v = c->x_act == OP_ACT_NONE || c->made
                               ? (double)x[k * c->in + i]
                               : linear_act(c->x_act, (double)x_pre[k * c->in + i], &slope);

                want[s * width + j] += (double)dout[k * c->out + o] * v;
            }
    for (int64_t i = 0; i < SAMPLE * width; i++)
        want[i] += c->fresh ? 0 : (double)before[row[i / width] * width + i % width];
    check_rows(g, c, "dw", &p->dw, row, width, want);
    free(want);
}

static void check_db(struct gpu *g, const struct linear_case *c, const struct linear_pair *p)
{
    const float *dout = p->dout.cpu, *before = p->db.cpu;
    float *got = gpu_fetch(g, &p->db);

    for (int64_t o = 0; o < c->out; o++) {
        double want = c->fresh ? 0 : (double)before[o], size = fabs(want);

        for (int64_t k = 0; k < c->n; k++) {
            want += (double)dout[k * c->out + o];
            size += fabs((double)dout[k * c->out + o]);
        }
        if (!(fabs((double)got[o] - want) <= 1e-6 * size))
            fail_msg("db[%lld] is %.9g, wanted %.9g", (long long)o, (double)got[o], want);
    }
    free(got);
}

/* The same inputs, and outputs as they were. */
static struct linear_pair fresh_outputs(struct gpu *g, const struct linear_case *c,
                                        const struct linear_pair *p)
{
    struct linear_pair q = *p;

    q.out = gpu_blank(g, g->type, p->out.n);
    q.pre = gpu_blank(g, g->type, p->pre.n);
    q.dx = gpu_blank(g, g->type, p->dx.n);
    if (c->x_act != OP_ACT_NONE && !c->kept && !c->made)
        q.back_x = gpu_blank(g, g->type, p->back_x.n);
    q.dw = gpu_values(g, CKPT_F32, p->dw.cpu, p->dw.n);
    q.db = gpu_values(g, CKPT_F32, p->db.cpu, p->db.n);
    return q;
}

static void check_large(struct gpu *g, const struct linear_case *c)
{
    struct linear_pair p = linear_arrays(g, c), q = fresh_outputs(g, c, &p);
    struct gpu_results first = {.n = 0}, again = {.n = 0};

    linear_run(g, c, &p, true);
    linear_run(g, c, &q, true);
    linear_results(&first, &p, 0, "the first run");
    linear_results(&again, &q, 0, "the second run");
    for (size_t i = 0; i < first.n; i++)
        gpu_same(g, first.at[i].name, &first.at[i].array, &again.at[i].array);
    check_out(g, c, &p);
    check_dx(g, c, &p);
    check_dw(g, c, &p);
    if (c->bias)
        check_db(g, c, &p);
}

/* Sums in parts, epilogues that are faster, others that are not. */
TEST(large)
{
    static const struct linear_case c[] = {
        {.n = 2048, .in = 1536, .out = 1536, .bias = true, .residual = true},
        {.n = 2048, .in = 1536, .out = 1536, .bias = true, .fresh = true},
        {.n = 1024, .in = 1024, .out = 4096, .bias = true, .act = OP_ACT_GELU_TANH, .pre = true},
        {.n = 1024, .in = 4096, .out = 1024, .bias = true, .x_act = OP_ACT_GELU_TANH},
        {.n = 1024, .in = 4096, .out = 1024, .bias = true, .x_act = OP_ACT_GELU_TANH,
         .made = true, .fresh = true},
        {.n = 1024, .in = 4096, .out = 1024, .x_act = OP_ACT_RELU, .kept = true},
        {.n = 2048, .in = 1024, .out = 1024, .bias = true, .in_out = true},
    };

    if (gpu_small())
        skip();
    for (size_t t = 0; t < 2; t++)      /* f32 and bf16, which f16 is like */
        for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
            struct op_limits l = {.n = c[i].n, .n_rows = 64, .dim = 4096, .n_head = 8, .n_kv = 8,
                                  .head_dim = 65, .ff = 4096, .vocab = 100, .train = true};
            struct gpu g;

            gpu_open(&g, gpu_types[t], &l);
            check_large(&g, &c[i]);
            gpu_close(&g);
        }
}
