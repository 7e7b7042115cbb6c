/*
 * AdamW over many runs in one call, all types of moments, on a GPU against the CPU; its
 * verdict; Muon's matrices.
 *
 * Before each of AdamW's steps the GPU gets the CPU's state: each comparison is of one step.
 */
#include "tests/gpu/gpu.h"

enum { MOST_RUNS = 600, SLACK = 16 };

/* One step's arithmetic in f32, contracted differently on each side. */
#define F32_BOUND 2e-6

/* How many of n codes or bf16 numbers may be off by one: those within a few units in the last
 * place of f32 from a border, of which there is one in 2^16 between two bf16 numbers. */
static int64_t neighbours(int64_t n) { return 2 + n / 2000; }

/* All arrays of all runs: param, exp_avg, exp_avg_sq, absmax, absmax_sq, grad, rounded. */
enum { PARAM, AVG, AVG_SQ, MAX, MAX_SQ, GRAD, ROUNDED, N_ARRAYS };

struct set {
    struct gpu       g;
    unsigned char   *at[2][N_ARRAYS];       /* CPU, GPU */
    size_t           bytes[N_ARRAYS];
    struct adamw_run run[2][MOST_RUNS];
    int64_t          n_run;
};

static size_t moment_size(enum op_moments m)
{
    return m == OP_MOMENTS_F32 ? 4 : m == OP_MOMENTS_BF16 ? 2 : 1;
}

/* Elements by which an array is off alignment: all alike but with skews 5 and 6. */
static size_t off_of(int skew, int k)
{
    if ((skew == 5 && k == GRAD) || (skew == 6 && k == AVG))
        return 1;
    return (size_t)(skew & 3);
}

/* Runs of those lengths; types of moments round robin, unless one is given (>= 0). */
static void set_open(struct set *s, enum ckpt_dtype type, const int64_t *size, int64_t n_run,
                     int kind, int skew)
{
    static size_t offset[MOST_RUNS][N_ARRAYS];
    static enum op_moments moments[MOST_RUNS];

    memset(s, 0, sizeof *s);
    gpu_open(&s->g, type, NULL);
    s->n_run = n_run;
    for (int64_t i = 0; i < n_run; i++) {
        enum op_moments m = moments[i] = (enum op_moments)(kind < 0 ? i % 3 : kind);
        size_t wide[N_ARRAYS] = {4, moment_size(m), moment_size(m), 4, 4, 4, ckpt_dtype_size(type)};

        for (int k = 0; k < N_ARRAYS; k++) {
            int64_t n = k == MAX || k == MAX_SQ ? (size[i] + 255) / 256 : size[i];

            offset[i][k] = s->bytes[k] + off_of(skew, k) * wide[k];
            s->bytes[k] += ((size_t)(n + SLACK) * wide[k] + 255) / 256 * 256;
        }
    }
    for (int k = 0; k < N_ARRAYS; k++) {
        s->at[0][k] = s->g.cpu->ops->alloc(s->g.cpu, s->bytes[k] + 1);
        s->at[1][k] = s->g.gpu->ops->alloc(s->g.gpu, s->bytes[k] + 1);
    }
    for (int side = 0; side < 2; side++)
        for (int64_t i = 0; i < n_run; i++) {
            void *p[N_ARRAYS];

            for (int k = 0; k < N_ARRAYS; k++)
                p[k] = s->at[side][k] + offset[i][k];
            s->run[side][i] = (struct adamw_run){
                .param = p[PARAM], .exp_avg = p[AVG], .exp_avg_sq = p[AVG_SQ], .absmax = p[MAX],
                .absmax_sq = p[MAX_SQ], .grad = p[GRAD], .n = size[i], .moments = moments[i],
                .rounded = side && i % 4 != 3 ? p[ROUNDED] : NULL,  /* the CPU's weights are f32 */
                .index = (uint64_t)(i * 100000 + (skew == 4)), .weight_decay = i % 2 ? 0.1 : 0};
        }
    rng_normal((float *)(void *)s->at[0][PARAM], 0, (int64_t)s->bytes[PARAM] / 4, 1, 3, 1);
}

static void set_close(struct set *s)
{
    for (int k = 0; k < N_ARRAYS; k++) {
        s->g.cpu->ops->free(s->g.cpu, s->at[0][k]);
        s->g.gpu->ops->free(s->g.gpu, s->at[1][k]);
    }
    gpu_close(&s->g);
}

static void upload(struct set *s)
{
    for (int k = 0; k < ROUNDED; k++)
        s->g.gpu->ops->to_device(s->g.gpu, s->at[1][k], s->at[0][k], s->bytes[k]);
}

/* The GPU's bytes of an array; the caller frees them. */
static unsigned char *fetched(struct set *s, int k)
{
    unsigned char *p = malloc(s->bytes[k] + 1);

    s->g.gpu->ops->to_host(s->g.gpu, p, s->at[1][k], s->bytes[k]);
    gpu_fine(&s->g);
    return p;
}

/* small: rounding is relative to this at least, where terms of that size cancel. */
static void check_floats(struct set *s, int k, float small, const char *what)
{
    unsigned char *held = fetched(s, k);
    const float *got = (const float *)(void *)held, *want = (const float *)(void *)s->at[0][k];

    for (size_t i = 0; i < s->bytes[k] / 4; i++)
        if (!(fabsf(got[i] - want[i]) <= (float)F32_BOUND * (fabsf(want[i]) + small)))
            fail_msg("%s %zu: GPU %g, CPU %g", what, i, (double)got[i], (double)want[i]);
    free(held);
}

/* Moments of run i. */
static void check_moments(struct set *s, int k, const unsigned char *got, int64_t i)
{
    const struct adamw_run *r = &s->run[0][i];
    const unsigned char *want = k == AVG ? r->exp_avg : r->exp_avg_sq;
    const unsigned char *have = got + (want - s->at[0][k]);
    int64_t off = 0;

    for (int64_t j = 0; j < r->n; j++) {
        int distance = 0;

        if (r->moments == OP_MOMENTS_F32) {
            float x = ((const float *)(const void *)have)[j];
            float y = ((const float *)(const void *)want)[j];

            if (!(fabsf(x - y) <= (float)F32_BOUND * (fabsf(y) + (k == AVG ? 1e-2f : 1e-9f))))
                fail_msg("array %d, run %lld, %lld: GPU %g, CPU %g", k, (long long)i, (long long)j,
                         (double)x, (double)y);
        } else if (r->moments == OP_MOMENTS_BF16) {
            distance = abs(((const uint16_t *)(const void *)have)[j] -
                           ((const uint16_t *)(const void *)want)[j]);
        } else {
            distance = abs(have[j] - want[j]);
        }
        if (distance > 1)
            fail_msg("array %d, run %lld, moments %d, element %lld of %lld: off by %d codes", k,
                     (long long)i, r->moments, (long long)j, (long long)r->n, distance);
        off += distance;
    }
    if (off > neighbours(r->n))
        fail_msg("array %d, run %lld, moments %d: %lld of %lld codes are off by one", k,
                 (long long)i, r->moments, (long long)off, (long long)r->n);
}

/* The weights written beside the parameters are those, rounded, and nothing around them. */
static void check_rounded(struct set *s)
{
    unsigned char *got = fetched(s, ROUNDED), *param = fetched(s, PARAM);
    unsigned char *want = calloc(1, s->bytes[ROUNDED] + 1);

    for (int64_t i = 0; i < s->n_run; i++) {
        const struct adamw_run *r = &s->run[1][i];

        if (r->rounded && r->n)
            ckpt_convert(want + ((unsigned char *)r->rounded - s->at[1][ROUNDED]), s->g.type,
                         param + ((unsigned char *)r->param - s->at[1][PARAM]), CKPT_F32,
                         (size_t)r->n);
    }
    assert_memory_equal(got, want, s->bytes[ROUNDED]);
    free(got);
    free(param);
    free(want);
}

static void check_step(struct set *s, const struct adamw *a)
{
    unsigned char *first[ROUNDED];

    for (int again = 0; again < (gpu_small() ? 1 : 2); again++) {
        upload(s);
        s->g.gpu->ops->adamw(s->g.gpu, s->run[1], s->n_run, a);
        for (int k = 0; k < ROUNDED; k++) {
            unsigned char *now = fetched(s, k);

            if (again) {                /* a rerun has the same bits */
                assert_memory_equal(now, first[k], s->bytes[k]);
                free(first[k]);
            }
            first[k] = now;
        }
    }
    s->g.cpu->ops->adamw(s->g.cpu, s->run[0], s->n_run, a);
    check_floats(s, PARAM, 1e-2f, "param");
    check_floats(s, MAX, 1e-9f, "absmax");
    check_floats(s, MAX_SQ, 1e-9f, "absmax_sq");
    for (int64_t i = 0; i < s->n_run; i++) {
        check_moments(s, AVG, first[AVG], i);
        check_moments(s, AVG_SQ, first[AVG_SQ], i);
    }
    check_rounded(s);
    for (int k = 0; k < ROUNDED; k++)
        free(first[k]);
}

static void steps(struct set *s, int n)
{
    for (int step = 1; step <= n; step++) {
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                          .grad_scale = 0.7, .step = step, .seed = 99};

        rng_normal((float *)(void *)s->at[0][GRAD], 0, (int64_t)s->bytes[GRAD] / 4, 0.1f, 5,
                   (uint64_t)step);
        check_step(s, &a);
    }
}

TEST(kinds_and_places)
{
    static const int64_t size[] = {1, 3, 4, 255, 256, 257, 1000, 4096, 4097, 4099, 0, 33333};

    for (int t = 0; t < gpu_n_types(); t++)
        for (int kind = 0; kind < 3; kind++)
            for (int skew = 0; skew < 7 - (gpu_small() == 2) * 3; skew++) {
                static struct set s;

                set_open(&s, gpu_types[t], size, 12, kind, skew);
                steps(&s, 2);
                set_close(&s);
            }
}

/* More runs than one launch takes, types of moments mixed. */
TEST(many_runs)
{
    static struct set s;
    int64_t size[MOST_RUNS];

    for (int i = 0; i < MOST_RUNS; i++)
        size[i] = (int64_t)i * 977 % (gpu_small() ? 900 : 9000);
    set_open(&s, CKPT_BF16, size, MOST_RUNS, -1, 0);
    steps(&s, 3);
    set_close(&s);
    set_open(&s, CKPT_BF16, size, MOST_RUNS, OP_MOMENTS_8BIT, 0);
    steps(&s, 2);
    set_close(&s);
}

/* The verdict is the CPU's, and the step obeys it: it clips, or does nothing. */
TEST(verdict)
{
    static const int64_t size[] = {70001, 5000, 9000};
    static struct set s;
    struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 5,
                      .step = 1};
    struct op_verdict cpu, gpu, *held;
    double sum, *held_sum;
    float *grad;
    int64_t n;

    set_open(&s, CKPT_BF16, size, 3, -1, 0);
    held = s.g.gpu->ops->alloc(s.g.gpu, sizeof *held);
    held_sum = s.g.gpu->ops->alloc(s.g.gpu, sizeof *held_sum);
    grad = (float *)(void *)s.at[0][GRAD];
    n = (int64_t)s.bytes[GRAD] / 4;
    for (int round = 0; round < 4; round++) {
        double max = round == 1 ? 0 : 1.0, scale = round == 2 ? 65536 : 1;

        rng_normal(grad, 0, n, 2, 5, 1);
        if (round == 3)
            grad[n / 2] = INFINITY;
        upload(&s);
        s.g.cpu->ops->sum_squares(s.g.cpu, &sum, grad, n);
        s.g.cpu->ops->judge(s.g.cpu, &cpu, &sum, max, scale);
        s.g.gpu->ops->sum_squares(s.g.gpu, held_sum, (float *)(void *)s.at[1][GRAD], n);
        s.g.gpu->ops->judge(s.g.gpu, held, held_sum, max, scale);
        s.g.gpu->ops->to_host(s.g.gpu, &gpu, held, sizeof gpu);
        gpu_fine(&s.g);
        assert_int_equal(gpu.finite, round != 3);
        assert_int_equal(cpu.finite, round != 3);
        if (round == 3)
            break;
        assert_true(fabs(gpu.norm - cpu.norm) <= 1e-12 * cpu.norm);
        assert_true(fabsf(gpu.factor - cpu.factor) <= 1e-7f * cpu.factor);
        a.verdict = held;
        s.g.gpu->ops->adamw(s.g.gpu, s.run[1], s.n_run, &a);
        a.verdict = &cpu;
        s.g.cpu->ops->adamw(s.g.cpu, s.run[0], s.n_run, &a);
        check_floats(&s, PARAM, 1e-2f, "param");
    }
    a.verdict = held;
    for (int k = 0; k < ROUNDED; k++) {
        unsigned char *was = fetched(&s, k), *now;

        s.g.gpu->ops->adamw(s.g.gpu, s.run[1], s.n_run, &a);
        now = fetched(&s, k);
        assert_memory_equal(now, was, s.bytes[k]);
        free(was);
        free(now);
    }
    s.g.gpu->ops->free(s.g.gpu, held);
    set_close(&s);
}

/* -- Muon ------------------------------------------------------------------------------------- */

/* A matrix that so many ranks step a part of each; a product of one of its sides at most. */
static const struct { int64_t rows, cols; int parts; } matrices[] = {
    {1, 1, 1}, {48, 80, 2}, {80, 48, 3}, {33, 33, 1}, {5, 130, 3}, {130, 5, 1}, {512, 320, 2}};

static const struct op_muon muons[] = {
    {.momentum = 0.95, .eps = 1e-7, .nesterov = true, .ns_steps = 5, .a = 3.4445, .b = -4.775,
     .c = 2.0315},
    {.momentum = 0.8, .eps = 1e-7, .ns_steps = 4, .a = 3, .b = -3.2, .c = 1.2,
     .adjust = OP_MUON_MATCH_RMS_ADAMW}};

enum { M_PARAM, M_MOMENTUM, M_GRAD, M_DIRECTION, M_WORK, M_ARRAYS };

/* A step on one side: all ranks' parts. */
static void muon_step(struct device *dev, struct both b[M_ARRAYS], struct both *rounded, bool gpu,
                      size_t at, const struct adamw *a)
{
    int64_t n = matrices[at].rows * matrices[at].cols, parts = matrices[at].parts;
    float *x[M_ARRAYS];

    for (int i = 0; i < M_ARRAYS; i++)
        x[i] = gpu ? b[i].gpu : b[i].cpu;
    for (int part = OP_MUON_MOMENTUM; part <= OP_MUON_UPDATE; part++)
        for (int64_t r = 0; r < (part == OP_MUON_ORTHOGONAL ? 1 : parts); r++) {
            int64_t start = n * r / parts;
            struct op_matrix m = {
                .param = x[M_PARAM] + start, .grad = x[M_GRAD] + start,
                .momentum = x[M_MOMENTUM] + start, .n = n * (r + 1) / parts - start,
                .start = start, .rows = matrices[at].rows, .cols = matrices[at].cols,
                .direction = x[M_DIRECTION], .work = x[M_WORK], .lr = 1e-2, .weight_decay = 0.1};

            if (gpu)
                m.rounded = (char *)rounded->gpu +
                            (size_t)start * ckpt_dtype_size(rounded->type);
            dev->ops->muon(dev, (enum op_muon_part)part, &m, a);
        }
}

/* Products in other orders: x goes through a polynomial of slope a a few times. */
static void muon_of(struct gpu *g)
{
    for (size_t at = 0; at < sizeof matrices / sizeof matrices[0]; at++) {
        int64_t rows = matrices[at].rows, cols = matrices[at].cols, n = rows * cols;
        struct adamw a = {.grad_scale = 0.5, .muon = &muons[at % 2]};
        struct both b[M_ARRAYS], rounded = gpu_blank(g, g->type, n);
        unsigned char *want = gpu_bytes(g, &rounded), *got;
        float *p;

        for (int i = 0; i < M_ARRAYS; i++)
            b[i] = i <= M_GRAD
                ? gpu_random(g, CKPT_F32, n, i == M_MOMENTUM ? 0 : 0.1f)
                : gpu_blank(g, CKPT_F32, i == M_WORK ? op_muon_work(rows, cols) : n);
        for (a.step = 1; a.step <= 3; a.step++) {
            muon_step(g->cpu, b, NULL, false, at, &a);
            muon_step(g->gpu, b, &rounded, true, at, &a);
        }
        gpu_close_to(g, "momentum", &b[M_MOMENTUM], F32_BOUND);
        gpu_close_to(g, "direction", &b[M_DIRECTION], 1e-4);
        gpu_close_to(g, "param", &b[M_PARAM], 1e-5);
        p = gpu_fetch(g, &b[M_PARAM]);
        ckpt_convert(want, g->type, p, CKPT_F32, (size_t)n);
        got = gpu_bytes(g, &rounded);
        assert_memory_equal(got, want, gpu_size(&rounded));
        free(got);
        free(want);
        free(p);
        gpu_release(g);
    }
}

TEST(muon)
{
    static const struct op_limits l = {.n = 512, .n_rows = 1, .max_doc = 512, .dim = 512, .n_head = 8,
                                       .n_kv = 8, .head_dim = 64, .ff = 512, .vocab = 512,
                                       .train = true};

    gpu_over_types(0, &l, muon_of);
}
