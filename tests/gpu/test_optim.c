/* AdamW, SGD, Lion, Adafactor, sums of squares and casts on a GPU against the CPU. */
#include "tests/gpu/gpu.h"

/* One step's arithmetic in f32: contracted differently on each side, so a few units in the last
 * place, relative to values of one size. */
#define F32_BOUND 2e-6

/* The weights written beside the parameters are those, rounded, and nothing around them. */
static void check_rounded(struct gpu *g, const struct both *param, int64_t at,
                          const struct both *rounded, int64_t to, int64_t n)
{
    size_t size = ckpt_dtype_size(rounded->type);
    struct both blank = gpu_blank(g, rounded->type, rounded->n);
    unsigned char *want = gpu_bytes(g, &blank), *got = gpu_bytes(g, rounded);
    float *p = gpu_fetch(g, param);

    ckpt_convert(want + (size_t)to * size, rounded->type, p + at, CKPT_F32, (size_t)n);
    assert_memory_equal(got, want, (size_t)rounded->n * size);
    free(want);
    free(got);
    free(p);
}

/* Arrays of n that begin at those offsets of larger ones; to: that of the rounded, -1: none. */
static void check_adamw(struct gpu *g, int64_t n, const int at[4], int to)
{
    struct both a[4], rounded = gpu_blank(g, g->type, n + 8);
    struct device *dev[2] = {g->cpu, g->gpu};
    size_t size = ckpt_dtype_size(g->type);

    for (int i = 0; i < 4; i++)
        a[i] = gpu_random(g, CKPT_F32, n + 8, i == 0 ? 1.0f : i == 2 ? 0.0f : 0.1f);
    for (int step = 1; step <= 3; step++)
        for (int s = 0; s < 2; s++) {
            struct adamw o = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8,
                              .grad_scale = 0.7, .step = step};
            float *p[4];

            for (int i = 0; i < 4; i++)
                p[i] = (float *)(s ? a[i].gpu : a[i].cpu) + at[i];
            struct adamw_run run = {.param = p[0], .exp_avg = p[1], .exp_avg_sq = p[2],
                                    .grad = p[3], .n = n, .weight_decay = 0.1};

            if (s && to >= 0)
                run.rounded = (char *)rounded.gpu + (size_t)to * size;
            dev[s]->ops->adamw(dev[s], &run, 1, &o);
        }
    gpu_close_to(g, "param", &a[0], F32_BOUND);
    gpu_close_to(g, "exp_avg", &a[1], F32_BOUND);
    gpu_close_to(g, "exp_avg_sq", &a[2], F32_BOUND);
    check_rounded(g, &a[0], at[0], &rounded, to < 0 ? 0 : to, to < 0 ? 0 : n);
    gpu_release(g);
}

static void adamw_sizes(struct gpu *g)
{
    static const int64_t sizes[] = {1, 3, 4, 5, 1000, 1023, 100003};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int skew = 0; skew < 6 && !gpu_left_out(sizes[k]); skew++) {
            /* 4, 5: the arrays lie differently */
            int lead = skew & 3;
            int at[4] = {lead, lead, skew == 4 ? 1 : lead, skew == 5 ? 2 : lead};

            check_adamw(g, sizes[k], at, skew == 5 ? -1 : skew == 3 ? 2 : lead);
        }
}

TEST(adamw) { gpu_over_types(0, NULL, adamw_sizes); }

/* SGD and Lion, with moments of float32. */
static void rules_once(struct gpu *g)
{
    static const struct { struct adamw a; bool moment; } rules[] = {
        {{.rule = OP_RULE_SGD}, false},
        {{.rule = OP_RULE_SGD, .momentum = 0.9, .dampening = 0.25}, true},
        {{.rule = OP_RULE_SGD, .momentum = 0.9, .nesterov = true}, true},
        {{.rule = OP_RULE_LION, .beta1 = 0.9, .beta2 = 0.99}, true},
    };
    static const int64_t sizes[] = {1, 1023, 100003};
    struct device *dev[2] = {g->cpu, g->gpu};

    for (size_t k = 0; k < 4 * sizeof sizes / sizeof sizes[0]; k++) {
        int64_t n = sizes[k / 4];
        struct both p = gpu_random(g, CKPT_F32, n, 1), m = gpu_random(g, CKPT_F32, n, 0);
        struct both x = gpu_random(g, CKPT_F32, n, 0.1f), rounded = gpu_blank(g, g->type, n + 8);
        struct adamw a = rules[k % 4].a;
        double lr = 1e-2;

        if (gpu_left_out(n))
            continue;
        a.lr = k % 2 ? 9 : lr;
        a.grad_scale = 0.7;
        for (a.step = 1; a.step <= 3; a.step++)
            for (int s = 0; s < 2; s++) {
                struct adamw_run run = {.param = s ? p.gpu : p.cpu, .grad = s ? x.gpu : x.cpu,
                                        .n = n, .weight_decay = 0.1, .lr = k % 2 ? &lr : NULL};

                if (rules[k % 4].moment)
                    run.exp_avg = s ? m.gpu : m.cpu;
                if (s)
                    run.rounded = rounded.gpu;
                dev[s]->ops->adamw(dev[s], &run, 1, &a);
            }
        gpu_close_to(g, "param", &p, F32_BOUND);
        gpu_close_to(g, "moment", &m, F32_BOUND);
        check_rounded(g, &p, 0, &rounded, 0, n);
        gpu_release(g);
    }
}

TEST(rules) { gpu_over_types(0, NULL, rules_once); }

TEST(sum_squares)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4194304 + 3};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int at = 0; at < 4 && !gpu_left_out(sizes[k]); at++) {
            struct both x = gpu_random(&g, CKPT_F32, sizes[k] + 4, 3);
            struct both to = gpu_random(&g, CKPT_F32, 4, 3);
            double want = -1, got = -1, again = -1, *sum = (double *)to.gpu;

            g.cpu->ops->sum_squares(g.cpu, &want, (float *)x.cpu + at, sizes[k]);
            for (int i = 0; i < 2; i++)
                g.gpu->ops->sum_squares(g.gpu, sum + i, (float *)x.gpu + at, sizes[k]);
            g.gpu->ops->to_host(g.gpu, &got, sum, sizeof got);
            g.gpu->ops->to_host(g.gpu, &again, sum + 1, sizeof again);
            gpu_fine(&g);
            /* both sum in f64: what differs is their order */
            if (!(fabs(got - want) <= 1e-12 * want))
                fail_msg("sum of %lld squares: GPU %.17g, CPU %.17g", (long long)sizes[k], got,
                         want);
            assert_memory_equal(&got, &again, sizeof got);
            gpu_release(&g);
        }
    gpu_close(&g);
}

/* On each stream, whatever the alignment: the same bits as the CPU's. */
TEST(add)
{
    static const int64_t sizes[] = {0, 1, 5, 1000, 4194304 + 3};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int at = 0; at < 8 && !gpu_left_out(sizes[k]); at++) {
            struct both x = gpu_random(&g, CKPT_F32, sizes[k] + 4, 3);
            struct both y = gpu_random(&g, CKPT_F32, sizes[k] + 4, 4);
            int skew = at < 4 ? at : 0;
            float *got = malloc((size_t)(sizes[k] + 4) * sizeof *got);

            assert_non_null(got);
            g.cpu->ops->add(g.cpu, OP_STREAM_MAIN, (float *)x.cpu + skew, (float *)y.cpu + at % 4,
                            sizes[k]);
            gpu_fine(&g);
            g.gpu->ops->add(g.gpu, at % 2 ? OP_STREAM_COMM : OP_STREAM_MAIN,
                            (float *)x.gpu + skew, (float *)y.gpu + at % 4, sizes[k]);
            gpu_fine(&g);
            g.gpu->ops->to_host(g.gpu, got, x.gpu, (size_t)(sizes[k] + 4) * sizeof *got);
            assert_memory_equal(got, x.cpu, (size_t)(sizes[k] + 4) * sizeof *got);
            free(got);
            gpu_release(&g);
        }
    gpu_close(&g);
}

/* Every pair of types, aligned and not, against ckpt_convert: bit for bit. */
TEST(cast)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 100003};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (int i = 0; i < 9; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            for (int at = 0; at < 2 && !gpu_left_out(sizes[k]); at++) {
                enum ckpt_dtype from = gpu_types[i / 3], to = gpu_types[i % 3];
                int64_t n = sizes[k];
                size_t in = ckpt_dtype_size(from), out = ckpt_dtype_size(to);
                struct both x = gpu_random(&g, from, n + 1, 100), y = gpu_blank(&g, to, n + 1);
                unsigned char *src = gpu_bytes(&g, &x), *want = malloc((size_t)n * out);
                unsigned char *got;

                ckpt_convert(want, to, src + (size_t)at * in, from, (size_t)n);
                g.gpu->ops->cast(g.gpu, OP_STREAM_MAIN, (char *)y.gpu + (size_t)at * out, to,
                                 (char *)x.gpu + (size_t)at * in, from, n);
                got = gpu_bytes(&g, &y);
                assert_memory_equal(got + (size_t)at * out, want, (size_t)n * out);
                free(src);
                free(want);
                free(got);
                gpu_release(&g);
            }
    gpu_close(&g);
}

/* Ends of the ranges: ties, overflow, subnormal numbers, infinity. */
TEST(cast_edges)
{
    static const float edge[] = {0.0f, -0.0f, 1.00390625f, 1.01171875f, 65504, 65519, 65520, 1e30f,
                                 6e-8f, 2.9e-8f, 1e-40f, -1e-40f, INFINITY, -INFINITY, 3.4e38f, 1};
    struct gpu g;

    gpu_open(&g, CKPT_F32, NULL);
    for (int i = 0; i < 3; i++) {
        int64_t n = sizeof edge / sizeof edge[0];
        struct both x = gpu_values(&g, CKPT_F32, edge, n), y = gpu_blank(&g, gpu_types[i], n);
        unsigned char want[sizeof edge], *got;

        ckpt_convert(want, gpu_types[i], edge, CKPT_F32, (size_t)n);
        g.gpu->ops->cast(g.gpu, OP_STREAM_MAIN, y.gpu, gpu_types[i], x.gpu, CKPT_F32, n);
        got = gpu_bytes(&g, &y);
        assert_memory_equal(got, want, (size_t)n * ckpt_dtype_size(gpu_types[i]));
        free(got);
    }
    gpu_close(&g);
}

/*
 * Adafactor: parameters of all kinds together, in one piece and in the pieces that ranks have, whose
 * sums are added between the parts of a step.
 */
enum { RANKS = 3, STEPS = 3 };

struct shape {
    int64_t rows, cols, height;
    int     part;                       /* of its tensor: two are one below another in a matrix */
};

static const struct shape shapes[] = {
    {12, 21, 12, 0}, {24, 7, 24, 0}, {10, 6, 5, 0}, {33, 0, 33, 0}, {1, 1, 1, 0}, {1, 100, 1, 0},
    {100, 1, 100, 0}, {65, 129, 65, 0}, {300, 37, 60, 0}, {1, 0, 1, 0}, {700, 0, 700, 0},
    {257, 300, 257, 0}, {2000, 97, 1000, 0}};
/* A tensor of so many parts follows, more than one launch has. */
enum { ALONE = sizeof shapes / sizeof shapes[0], PARTS = 54, UPPER = 5, LOWER = 3, WIDE = 37,
       N = ALONE + PARTS };

static struct shape shape_of(int i)
{
    int part = i - ALONE, rows = part % 2 ? LOWER : UPPER;

    return part < 0 ? shapes[i] : (struct shape){rows, WIDE, rows, part};
}

static int64_t numel_of(const struct shape *s) { return s->rows * (s->cols ? s->cols : 1); }
static int64_t sums_of(const struct shape *s)
{
    return s->rows + (s->cols ? s->rows / s->height * s->cols : 0);
}

/* All arrays of one parameter; of a rank's numbers there is a copy for each. */
struct held {
    struct both p, g, m, rounded, row[RANKS], col[RANKS], rms[RANKS], sum[RANKS], square[RANKS];
};

/* An array of f64. */
static struct both doubles(struct gpu *g, int64_t n)
{
    return gpu_random(g, CKPT_F32, 2 * n, 1e3f);
}

/* Rows and columns of the tensor of those that begins with i. */
static int64_t tensor_rows(int i) { return i < ALONE ? shapes[i].rows : PARTS / 2 * (UPPER + LOWER); }
static int64_t tensor_cols(int i)
{
    return i < ALONE ? sums_of(&shapes[i]) - shapes[i].rows : PARTS / 2 * WIDE;
}

static void open_held(struct gpu *g, struct held *h, int i)
{
    struct shape shape = shape_of(i), *s = &shape;
    int64_t n = numel_of(s), sums = sums_of(s);
    int seed = i;

    h->p = gpu_random(g, CKPT_F32, n, seed % 3 ? 0.02f : 1.0f);
    h->g = gpu_random(g, CKPT_F32, n, 0.1f);
    h->m = gpu_random(g, CKPT_F32, n, 0);
    h->rounded = gpu_blank(g, g->type, n + 1);
    for (int r = 0; r < RANKS; r++) {
        h->sum[r] = doubles(g, sums);
        if (s->part > 0)
            continue;
        h->row[r] = gpu_random(g, CKPT_F32, tensor_rows(i), 0);
        h->col[r] = gpu_random(g, CKPT_F32, s->cols ? tensor_cols(i) : 1, 0);
        h->rms[r] = gpu_random(g, CKPT_F32, 1, 0);
        h->square[r] = doubles(g, 2);
    }
}

/* What rank r of so many has of parameter i. */
static struct op_factored op_of(const struct held *all, int i, int r, int ranks, bool gpu,
                                bool moment)
{
#define AT(x) (gpu ? (x).gpu : (x).cpu)
    struct shape shape = shape_of(i), *s = &shape;
    const struct held *h = &all[i], *first = h - s->part;
    int64_t matrix = s->part / 2, above = s->part % 2 ? UPPER : 0;
    int64_t tall = i < ALONE ? s->height : UPPER + LOWER;
    int64_t n = numel_of(s), part = (n + ranks - 1) / ranks;
    int64_t start = r * part < n ? r * part : n;
    double *square = AT(first->square[r]);
    struct op_factored f = {
        .param = (float *)AT(h->p) + start, .grad = (float *)AT(h->g) + start,
        .exp_avg = moment ? (float *)AT(h->m) + start : NULL,
        .n = n - start < part ? n - start : part, .rows = s->rows, .cols = s->cols,
        .height = s->height, .above = above, .tall = tall, .first = s->part == 0,
        .numel = i < ALONE ? n : tensor_rows(i) * WIDE,
        .row = (float *)AT(first->row[r]) + matrix * tall + above,
        .col = (float *)AT(first->col[r]) + matrix * s->cols, .rms = AT(first->rms[r]),
        .beside = i < ALONE || s->part % 2 ? NULL : (double *)AT(all[i + 1].sum[r]) + LOWER,
        .sum = AT(h->sum[r]), .weight_square = square, .update_square = square + 1, .lr = 1e-2,
        .weight_decay = start % 2 ? 0 : 0.1};

    f.start = f.n ? start : 0;
    if (gpu)                            /* the CPU's weights are f32 */
        f.rounded = (char *)AT(h->rounded) + (size_t)start * ckpt_dtype_size(h->rounded.type);
    return f;
#undef AT
}

/* Numbers of all ranks become their sums, on the host. */
static void add(struct device *dev, void *const at[RANKS], int ranks, int64_t n)
{
    double *sum = calloc((size_t)n + 1, sizeof *sum), *x = calloc((size_t)n + 1, sizeof *x);

    for (int r = 0; r < ranks; r++) {
        dev->ops->to_host(dev, x, at[r], (size_t)n * sizeof *x);
        for (int64_t k = 0; k < n; k++)
            sum[k] += x[k];
    }
    for (int r = 0; r < ranks; r++)
        dev->ops->to_device(dev, at[r], sum, (size_t)n * sizeof *sum);
    free(sum);
    free(x);
}

static void step(struct gpu *g, const struct held *h, int ranks, bool gpu, struct adamw *a)
{
    struct device *dev = gpu ? g->gpu : g->cpu;
    struct op_factored f[RANKS][N];
    void *at[RANKS];

    for (int part = OP_FACTORED_SUMS; part <= OP_FACTORED_UPDATE; part++) {
        for (int r = 0; r < ranks; r++) {
            for (int i = 0; i < N; i++)
                f[r][i] = op_of(h, i, r, ranks, gpu, !isnan(a->adafactor->beta1));
            dev->ops->factored(dev, (enum op_factored_part)part, f[r], N, a);
        }
        for (int i = 0; part < OP_FACTORED_UPDATE && i < N; i++) {
            struct shape s = shape_of(i);

            for (int r = 0; r < ranks; r++)
                at[r] = f[r][i].sum;
            if (part == OP_FACTORED_SUMS)
                add(dev, at, ranks, sums_of(&s));
            for (int r = 0; r < ranks; r++)
                at[r] = part == OP_FACTORED_SUMS ? f[r][i].weight_square : f[r][i].update_square;
            if (f[0][i].first)
                add(dev, at, ranks, 1);
        }
    }
}

static void check(struct gpu *g, const struct held *h)
{
    for (int i = 0; i < N; i++) {
        struct shape s = shape_of(i);
        int64_t n = numel_of(&s);
        unsigned char *want = gpu_bytes(g, &h[i].rounded), *got = gpu_bytes(g, &h[i].rounded);
        float *p = gpu_fetch(g, &h[i].p);

        gpu_close_to(g, "param", &h[i].p, F32_BOUND);
        gpu_close_to(g, "exp_avg", &h[i].m, F32_BOUND);
        if (s.part == 0) {
            gpu_close_to(g, "row", &h[i].row[0], F32_BOUND);
            gpu_close_to(g, "col", &h[i].col[0], F32_BOUND);
            gpu_close_to(g, "rms", &h[i].rms[0], F32_BOUND);
        }
        ckpt_convert(want, g->type, p, CKPT_F32, (size_t)n);
        assert_memory_equal(got, want, gpu_size(&h[i].rounded));
        free(want);
        free(got);
        free(p);
    }
}

static const struct op_adafactor adafactors[] = {
    {.eps = 1e-30, .eps_rms = 1e-3, .clip_threshold = 1, .decay_rate = -0.8, .beta1 = NAN,
     .scale_parameter = true, .relative_step = true},
    {.eps = 1e-30, .eps_rms = 1e-3, .clip_threshold = 0.5, .decay_rate = -0.8, .beta1 = 0.9,
     .relative_step = true, .warmup_init = true},
    {.eps = 1e-10, .eps_rms = 1e-3, .clip_threshold = 2, .decay_rate = -0.5, .beta1 = NAN,
     .scale_parameter = true},
    {.eps = 1e-30, .eps_rms = 1e-3, .clip_threshold = 1, .decay_rate = -0.8, .beta1 = 0.9},
};

/* Steps of ranks' pieces, on both sides. */
static void steps(struct gpu *g, int ranks, const struct op_adafactor *o)
{
    struct held h[N];
    struct adamw a = {.rule = OP_RULE_ADAFACTOR, .grad_scale = 0.7, .adafactor = o};

    for (int i = 0; i < N; i++)
        open_held(g, &h[i], i);
    for (a.step = 1; a.step <= STEPS; a.step++)
        for (int side = 0; side < 2; side++)
            step(g, h, ranks, side, &a);
    check(g, h);
    gpu_release(g);
}

static void all_rules(struct gpu *g)
{
    for (size_t k = 0; k < sizeof adafactors / sizeof adafactors[0]; k++)
        steps(g, k % 2 ? RANKS : 1, &adafactors[k]);
}

TEST(factored) { gpu_over_types(0, NULL, all_rules); }

/* Twice the same bits; and a verdict scales gradients, or keeps all as it was. */
TEST(factored_again)
{
    struct held h[2][N];
    struct adamw a = {.rule = OP_RULE_ADAFACTOR, .grad_scale = 1, .step = 1, .adafactor = adafactors};
    struct op_verdict v[2] = {{.factor = 0.25f, .finite = 1}, {.factor = 1, .finite = 0}};
    struct op_verdict *at;
    struct gpu g;

    gpu_open(&g, CKPT_BF16, NULL);
    at = g.gpu->ops->alloc(g.gpu, sizeof v);
    g.gpu->ops->to_device(g.gpu, at, v, sizeof v);
    for (int i = 0; i < N; i++) {
        struct shape s = shape_of(i);
        float *p;

        open_held(&g, &h[0][i], i);
        open_held(&g, &h[1][i], i);
        p = gpu_fetch(&g, &h[0][i].g);
        for (int64_t k = 0; k < numel_of(&s); k++)
            p[k] *= 0.25f;              /* exact */
        g.gpu->ops->to_device(g.gpu, h[1][i].g.gpu, p, gpu_size(&h[0][i].g));
        free(p);
        p = gpu_fetch(&g, &h[0][i].p);
        g.gpu->ops->to_device(g.gpu, h[1][i].p.gpu, p, gpu_size(&h[0][i].p));
        free(p);
    }
    a.verdict = &at[0];
    step(&g, h[0], RANKS, true, &a);
    a.verdict = &at[1];
    step(&g, h[0], RANKS, true, &a);
    a.verdict = NULL;
    step(&g, h[1], RANKS, true, &a);
    for (int i = 0; i < N; i++) {
        gpu_same(&g, "param", &h[0][i].p, &h[1][i].p);
        if (shape_of(i).part == 0)
            gpu_same(&g, "row", &h[0][i].row[0], &h[1][i].row[0]);
        if (shape_of(i).part == 0 && shape_of(i).cols)
            gpu_same(&g, "col", &h[0][i].col[1], &h[1][i].col[1]);
        gpu_same(&g, "rounded", &h[0][i].rounded, &h[1][i].rounded);
    }
    g.gpu->ops->free(g.gpu, at);
    gpu_close(&g);
}

/* Bytes on both sides. */
struct raw {
    unsigned char *cpu, *gpu;
    size_t bytes;
};

static struct raw raw_open(struct gpu *g, size_t bytes)
{
    struct raw r = {g->cpu->ops->alloc(g->cpu, bytes + 1), g->gpu->ops->alloc(g->gpu, bytes + 1),
                    bytes};

    assert_true(r.cpu && r.gpu);
    return r;
}

static void raw_close(struct gpu *g, struct raw *r)
{
    g->cpu->ops->free(g->cpu, r->cpu);
    g->gpu->ops->free(g->gpu, r->gpu);
}

/* Numbers of bf16, of which few may be neighbours: where the random bits decide within an f32's
 * own rounding. */
static void check_bf16(struct gpu *g, const char *what, const struct raw *r)
{
    uint16_t *got = malloc(r->bytes + 1);
    const uint16_t *want = (const uint16_t *)(const void *)r->cpu;
    int64_t n = (int64_t)r->bytes / 2, off = 0;

    g->gpu->ops->to_host(g->gpu, got, r->gpu, r->bytes);
    gpu_fine(g);
    for (int64_t i = 0; i < n; i++) {
        float x[2];

        ckpt_convert(&x[0], CKPT_F32, &got[i], CKPT_BF16, 1);
        ckpt_convert(&x[1], CKPT_F32, &want[i], CKPT_BF16, 1);
        /* a few units of what cancelled count where the rest is small */
        if (!(fabsf(x[0] - x[1]) <= 0x1p-7f * fabsf(x[1]) + 1e-7f))
            fail_msg("%s[%lld]: GPU %04x, CPU %04x", what, (long long)i, got[i], want[i]);
        off += got[i] != want[i];
    }
    if (off > 2 + n / 500)
        fail_msg("%s: %lld of %lld differ", what, (long long)off, (long long)n);
    free(got);
}

/* Weights of bf16 alone, rounded by chance: every rule and kind of moments, from the CPU's state at
 * each step; w and g begin at those offsets of larger arrays. */
static void narrow_case(struct gpu *g, const struct adamw *rule, enum op_moments kind, int64_t n,
                        int64_t w_at, int64_t g_at)
{
    enum { W, M, V, MAX, MAX_SQ, N_RAW };
    bool adam = rule->rule == OP_RULE_ADAMW;
    bool moment = adam || rule->rule == OP_RULE_LION || rule->momentum > 0;
    size_t wide = kind == OP_MOMENTS_F32 ? 4 : kind == OP_MOMENTS_BF16 ? 2 : 1;
    size_t blocks = (size_t)(n + OP_MOMENTS_BLOCK - 1) / OP_MOMENTS_BLOCK;
    struct raw r[N_RAW];
    struct both x = gpu_random(g, CKPT_F32, n + 8, 0.1f), p = gpu_random(g, CKPT_F32, n + 8, 1);
    struct adamw a = *rule;

    r[W] = raw_open(g, (size_t)(n + 8) * 2);
    r[M] = raw_open(g, (size_t)n * wide);
    r[V] = raw_open(g, (size_t)n * wide);
    r[MAX] = raw_open(g, blocks * 4);
    r[MAX_SQ] = raw_open(g, blocks * 4);
    ckpt_convert(r[W].cpu, CKPT_BF16, p.cpu, CKPT_F32, (size_t)n + 8);
    a.grad_scale = 0.7;
    a.seed = 42;
    for (a.step = 1; a.step <= 3; a.step++) {
        for (int k = 0; k < N_RAW; k++)
            g->gpu->ops->to_device(g->gpu, r[k].gpu, r[k].cpu, r[k].bytes);
        for (int s = 0; s < 2; s++) {
            struct device *dev = s ? g->gpu : g->cpu;
#define AT(k) ((void *)(s ? r[k].gpu : r[k].cpu))
            struct adamw_run run = {
                .rounded = (uint16_t *)AT(W) + w_at, .exp_avg = moment ? AT(M) : NULL,
                .exp_avg_sq = adam ? AT(V) : NULL, .absmax = AT(MAX),
                .absmax_sq = adam ? AT(MAX_SQ) : NULL,
                .grad = (float *)(s ? x.gpu : x.cpu) + g_at, .n = n, .index = 1000003,
                .weight_decay = 0.1, .moments = kind};
#undef AT

            dev->ops->adamw(dev, &run, 1, &a);
        }
        check_bf16(g, "weights", &r[W]);
    }
    for (int k = 0; k < N_RAW; k++)
        raw_close(g, &r[k]);
    gpu_release(g);
}

TEST(narrow)
{
    static const struct { struct adamw a; enum op_moments kind; } kinds[] = {
        {{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, OP_MOMENTS_F32},
        {{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, OP_MOMENTS_BF16},
        {{.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8}, OP_MOMENTS_8BIT},
        {{.rule = OP_RULE_SGD, .lr = 1e-1}, OP_MOMENTS_F32},
        {{.rule = OP_RULE_SGD, .lr = 1e-1, .momentum = 0.9}, OP_MOMENTS_F32},
        {{.rule = OP_RULE_LION, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99}, OP_MOMENTS_F32},
        {{.rule = OP_RULE_LION, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99}, OP_MOMENTS_8BIT}};
    static const int64_t sizes[] = {1, 5, 1023, 20003};
    struct gpu g;

    gpu_open(&g, CKPT_BF16, NULL);
    g.cpu->weight = CKPT_BF16;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            narrow_case(&g, &kinds[k].a, kinds[k].kind, sizes[i], 0, 0);
            narrow_case(&g, &kinds[k].a, kinds[k].kind, sizes[i], 3, 3);
            narrow_case(&g, &kinds[k].a, kinds[k].kind, sizes[i], 1, 0);
        }
    gpu_close(&g);
}
