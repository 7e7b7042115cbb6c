/*
 * Projections with factors of 8 bits on a GPU: rounding, products, and weights kept in 8 bits.
 *
 * The product itself shows the rounding: an identity is exact in 8 bits, and a product with it
 * gives the other factor as it was rounded.
 */
#include "tests/gpu/linear_pair.h"

enum { N = 1032, WIDE = 2048 };         /* enough for 8 bits; N is no multiple of 16 */

static const struct op_limits limits = {.n = WIDE, .n_rows = WIDE, .dim = 2064, .n_head = 8,
                                        .n_kv = 8, .head_dim = 65, .ff = 2304, .vocab = 100,
                                        .lora_rank = 24, .lora_drop = true,
                                        .lora_magnitude = true, .drop = true, .train = true};

static void open_fp8(struct gpu *g, enum device_fp8 fp8)
{
    struct device_opts opts = {.name = "cuda", .weights = CKPT_BF16, .fp8 = fp8};

    gpu_open_as(g, &opts, &limits);
}

/* x to the nearest of a type with so many bits after the point, ties to even; least: its least
 * normal number. */
static double nearest(double x, int bits, double least)
{
    int e;
    double step;

    frexp(fabs(x) < least ? least : x, &e);
    step = ldexp(1, e - 1 - bits);
    return rint(x / step) * step;
}

static double e4m3(double x) { return nearest(x, 3, 0x1p-6); }
static double e5m2(double x) { return nearest(x, 2, 0x1p-14); }

/* As the device: the largest power of two that keeps all within `top`. */
static double scale_of(const float *x, int64_t n, double top)
{
    double most = 0, scale = 1;

    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)x[i]));
    if (most == 0)
        return 1;
    while (most * scale <= top)
        scale *= 2;
    while (most * scale > top)
        scale /= 2;
    return scale;
}

static void round_all(double *to, const float *x, int64_t n, bool wide)
{
    double scale = scale_of(x, n, wide ? 57344 : 448);

    for (int64_t i = 0; i < n; i++)
        to[i] = (wide ? e5m2 : e4m3)((double)x[i] * scale) / scale;
}

/* Every bf16 from `top` down, again and again: top is there, so that the scale is 1. */
static struct both every_value(struct gpu *g, int64_t n, float top)
{
    float *host = malloc((size_t)n * sizeof *host);
    uint32_t last, bits;
    struct both b;

    memcpy(&last, &top, 4);
    last >>= 16;
    for (int64_t i = 0; i < n; i++) {
        bits = (uint32_t)(last - (uint32_t)(i / 2 % (last + 1))) << 16 | (uint32_t)(i % 2) << 31;
        memcpy(&host[i], &bits, 4);
    }
    b = gpu_values(g, CKPT_BF16, host, n);
    free(host);
    return b;
}

static struct both identity(struct gpu *g, int64_t rows, int64_t cols)
{
    float *host = calloc((size_t)(rows * cols), sizeof *host);
    struct both b;

    for (int64_t i = 0; i < rows && i < cols; i++)
        host[i * cols + i] = 1;
    b = gpu_values(g, CKPT_BF16, host, rows * cols);
    free(host);
    return b;
}

/* got[rows, cols] is want, or with `transposed` its first rows are want's columns. */
static void equal(struct gpu *g, const char *name, const struct both *got, const double *want,
                  int64_t rows, int64_t cols, bool transposed)
{
    float *x = gpu_fetch(g, got);

    for (int64_t i = 0; i < rows; i++)
        for (int64_t o = 0; o < cols; o++) {
            double found = (double)x[transposed ? o * cols + i : i * cols + o];

            if (found != want[i * cols + o])
                fail_msg("%s[%lld, %lld]: %.9g, %.9g wanted", name, (long long)i, (long long)o,
                         found, want[i * cols + o]);
        }
    free(x);
}

static void check_codes(enum device_fp8 fp8)
{
    bool wide = fp8 == DEVICE_FP8_HYBRID;
    int64_t n = 2041;                   /* dw sums over them: padded to 2048 */
    struct op_linear op;
    struct both x, dy, w, one, out, dx, dw;
    double *want = malloc((size_t)(n * WIDE) * sizeof *want);
    struct gpu g;

    open_fp8(&g, fp8);
    x = every_value(&g, n * WIDE, 448);
    dy = every_value(&g, n * WIDE, wide ? 57344 : 448);
    w = identity(&g, WIDE, WIDE);
    one = identity(&g, n, WIDE);
    out = gpu_blank(&g, CKPT_BF16, n * WIDE);
    dx = gpu_blank(&g, CKPT_BF16, n * WIDE);
    dw = gpu_blank(&g, CKPT_F32, WIDE * WIDE);
    g.gpu->ops->zero(g.gpu, dw.gpu, WIDE * WIDE * sizeof(float));
    op = (struct op_linear){.out = out.gpu, .x = x.gpu, .proj.w = w.gpu, .n = n, .n_in = WIDE,
                            .n_out = WIDE};
    g.gpu->ops->linear_fwd(g.gpu, &op);
    round_all(want, x.cpu, n * WIDE, false);
    equal(&g, "out", &out, want, n, WIDE, false);

    op.x = one.gpu;
    op.dout = dy.gpu;
    op.dx = dx.gpu;
    op.proj.dw = dw.gpu;
    g.gpu->ops->linear_bwd(g.gpu, &op);
    round_all(want, dy.cpu, n * WIDE, wide);
    equal(&g, "dx", &dx, want, n, WIDE, false);
    equal(&g, "dw by dy", &dw, want, n, WIDE, true);

    op.x = x.gpu;
    op.dout = one.gpu;
    op.dx = NULL;
    g.gpu->ops->zero(g.gpu, dw.gpu, WIDE * WIDE * sizeof(float));
    g.gpu->ops->linear_bwd(g.gpu, &op);
    round_all(want, x.cpu, n * WIDE, false);
    equal(&g, "dw by x", &dw, want, n, WIDE, false);
    free(want);
    gpu_fine(&g);
    gpu_close(&g);
}

TEST(codes_hybrid) { check_codes(DEVICE_FP8_HYBRID); }

TEST(codes_e4m3)
{
    if (gpu_small())
        skip();
    check_codes(DEVICE_FP8_E4M3);
}

/* One value that is not finite makes the whole product NaN; zeros give zeros; the largest and
 * the smallest numbers pass through. */
TEST(strange)
{
    static const float at[] = {NAN, INFINITY, -INFINITY, 0, 1e30f, 1e-30f, 1e-40f};
    float *host = calloc(N * WIDE, sizeof *host);
    struct gpu g;

    if (gpu_small() == 2)
        skip();
    open_fp8(&g, DEVICE_FP8_HYBRID);
    for (size_t k = 0; k < (gpu_small() ? 2 : sizeof at / sizeof at[0]); k++) {
        struct both x, w = identity(&g, WIDE, WIDE), out = gpu_blank(&g, CKPT_BF16, N * WIDE);
        struct op_linear op;
        float *got, want;

        host[7 * WIDE + 3] = at[k];
        x = gpu_values(&g, CKPT_BF16, host, N * WIDE);
        want = ((float *)x.cpu)[7 * WIDE + 3];
        op = (struct op_linear){.out = out.gpu, .x = x.gpu, .proj.w = w.gpu, .n = N, .n_in = WIDE,
                                .n_out = WIDE};
        g.gpu->ops->linear_fwd(g.gpu, &op);
        got = gpu_fetch(&g, &out);
        for (int64_t i = 0; i < N * WIDE; i++) {
            double off = (double)got[i] - (double)(i == 7 * WIDE + 3 ? want : 0);

            /* Four significant bits; products below the normal numbers of f32 may be lost. */
            if (isfinite(at[k]) ? !(fabs(off) <= fabs((double)want) / 16 + 0x1p-126)
                                : !isnan(got[i]))
                fail_msg("%g: out[%lld] is %g", (double)at[k], (long long)i, (double)got[i]);
        }
        free(got);
        gpu_release(&g);
    }
    free(host);
    gpu_fine(&g);
    gpu_close(&g);
}

struct error { double worst, square; };

/* The error of a product A B^T, [m, k] and [n, k] with strides, at every 6101st element, in
 * units of the root of the sum of its terms' squares. */
static struct error product_error(const float *got, const double *a, int64_t a_row, int64_t a_k,
                                  const double *b, int64_t b_row, int64_t b_k, int64_t m,
                                  int64_t n, int64_t k, double rounding)
{
    struct error e = {0, 0};
    int64_t count = 0;

    for (int64_t at = 0; at < m * n; at += 6101) {
        int64_t i = at / n, j = at % n;
        double sum = 0, squares = 0, off;

        for (int64_t l = 0; l < k; l++) {
            double p = a[i * a_row + l * a_k] * b[j * b_row + l * b_k];

            sum += p;
            squares += p * p;
        }
        off = fmax(fabs((double)got[at] - sum) - rounding * fabs(sum), 0) / sqrt(squares);
        e.worst = fmax(e.worst, off);
        e.square += off * off;
        count++;
    }
    e.square = sqrt(e.square / (double)count);
    return e;
}

static void within(const char *name, struct error e, double bound)
{
    print_message("%s: worst %.2e, mean square %.2e of sqrt(sum of squares)\n", name, e.worst,
                  e.square);
    if (!(e.worst <= bound))
        fail_msg("%s: off by %.3g, bound %.3g", name, e.worst, bound);
}

/*
 * Against f64 over the rounded factors.  A tensor core adds 32 products of 8 bits and its sum
 * so far at once, each cut some 13 bits after the largest's first: over all of k forward, while
 * the backward promotes sums of 128 to f32.  Of 390 sums the worst were 1.3e-3 and 4.5e-4 on an
 * H200.
 */
static void check_products(enum device_fp8 fp8)
{
    int64_t in = 2048, out = 2304;
    bool wide = fp8 == DEVICE_FP8_HYBRID;
    struct linear_case c = {.n = N, .in = in, .out = out};
    struct linear_pair p;
    double *x = malloc((size_t)(N * in) * sizeof *x), *w = malloc((size_t)(in * out) * sizeof *w);
    double *dy = malloc((size_t)(N * out) * sizeof *dy);
    float *y, *dx, *dw;
    struct gpu g;

    open_fp8(&g, fp8);
    p = linear_arrays(&g, &c);
    g.gpu->ops->zero(g.gpu, p.dw.gpu, (size_t)(in * out) * sizeof(float));
    linear_run(&g, &c, &p, true);
    round_all(x, p.x.cpu, N * in, false);
    round_all(w, p.w.cpu, in * out, false);
    round_all(dy, p.dout.cpu, N * out, wide);
    y = gpu_fetch(&g, &p.out);
    dx = gpu_fetch(&g, &p.dx);
    dw = gpu_fetch(&g, &p.dw);
    within("out", product_error(y, x, in, 1, w, in, 1, N, out, in, 0x1p-8), 4e-3);
    within("dx", product_error(dx, dy, out, 1, w, 1, in, N, in, out, 0x1p-8), 1e-3);
    within("dw", product_error(dw, dy, 1, out, x, 1, in, out, in, N, 0x1p-23), 1e-3);
    free(y);
    free(dx);
    free(dw);
    free(x);
    free(w);
    free(dy);
    gpu_fine(&g);
    gpu_close(&g);
}

TEST(products)
{
    if (gpu_small() == 2)
        skip();
    check_products(DEVICE_FP8_HYBRID);
    if (!gpu_small())
        check_products(DEVICE_FP8_E4M3);
}

/* |x - y| / |y| of whole arrays. */
static double distance(struct gpu *g, const struct both *b)
{
    float *got = gpu_fetch(g, b), *want = b->cpu;
    double off = 0, all = 1e-300;

    for (int64_t i = 0; i < b->n; i++) {
        off += pow((double)got[i] - (double)want[i], 2);
        all += pow((double)want[i], 2);
    }
    free(got);
    return sqrt(off / all);
}

/*
 * Every field of the operation, against the CPU's f32.  Rounding to e4m3 changes a value by 2.6
 * % in the mean square (2^-4 at most), to e5m2 by 5.2 %; a product of two such by 3.7 and 5.9
 * %, and as much a sum of many.  What is added unrounded makes it less, an activation may
 * stretch it.
 */
static void check_fields(enum device_fp8 fp8, const struct linear_case *c)
{
    const bool used[] = {true, c->pre, !c->no_dx, c->x_act != OP_ACT_NONE, !c->frozen, c->bias};
    struct gpu_results first = {.n = 0}, again = {.n = 0};
    struct linear_pair p, q;
    bool eight = false;
    char name[120];
    struct gpu g;

    open_fp8(&g, fp8);
    p = linear_arrays(&g, c);
    linear_run(&g, c, &p, false);
    linear_run(&g, c, &p, true);
    g.draws = 0;
    q = linear_arrays(&g, c);
    linear_run(&g, c, &q, true);
    snprintf(name, sizeof name, "act %d x_act %d in_out %d rank %lld", (int)c->act, (int)c->x_act,
             c->in_out, (long long)c->rank);
    linear_results(&first, &p, 0.08, name);
    linear_results(&again, &q, 0.08, name);
    for (size_t i = 0; i < sizeof used / sizeof used[0]; i++) {
        const struct gpu_result *r = &first.at[i];
        double off = used[i] ? distance(&g, &r->array) : 0;

        if (!used[i])
            continue;
        if (!(off < r->bound))
            fail_msg("%s: off by %.3g", r->name, off);
        eight |= off > 0.01;
        gpu_same(&g, r->name, &r->array, &again.at[i].array);
    }
    if (!eight)
        fail_msg("[%lld, %lld -> %lld] was not multiplied in 8 bits", (long long)c->n,
                 (long long)c->in, (long long)c->out);
    gpu_fine(&g);
    gpu_close(&g);
}

TEST(fields)
{
    static const struct linear_case c[] = {
        {.n = N, .in = 2048, .out = 2304, .bias = true, .residual = true},
        {.n = N + 1, .in = 2304, .out = 2048, .bias = true, .in_place = true},
        {.n = N + 7, .in = 2048, .out = 2064, .bias = true, .in_out = true, .dx_add = true},
        {.n = N, .in = 4096, .out = 1024, .out_ld = 1536},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .act = OP_ACT_GELU_TANH, .pre = true},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .act = OP_ACT_RELU},
        {.n = N, .in = 2048, .out = 2048, .act = OP_ACT_SILU, .pre = true},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .x_act = OP_ACT_GELU_TANH},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .x_act = OP_ACT_RELU, .kept = true},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .residual = true, .drop = 0.25f},
        {.n = N, .in = 2048, .out = 2048, .frozen = true},
        {.n = N, .in = 2048, .out = 2048, .no_dx = true},
        {.n = N, .in = 2048, .out = 2048, .frozen = true, .rank = 16},
        {.n = N, .in = 2048, .out = 2048, .frozen = true, .rank = 16, .lora_drop = 0.1f},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .rank = 16},
    };

    for (size_t i = 0; i < sizeof c / sizeof c[0]; i += gpu_small() == 2 ? 9 : gpu_small() ? 3 : 1)
        check_fields(i % 2 ? DEVICE_FP8_E4M3 : DEVICE_FP8_HYBRID, &c[i]);
}

/* Products that stay in 16 bits are as close as without the option. */
TEST(wide)
{
    static const struct linear_case c[] = {
        {.n = 40, .in = 2048, .out = 2048, .bias = true},
        {.n = N, .in = 512, .out = 640, .bias = true},
        {.n = N, .in = 2056, .out = 2048, .bias = true},
        {.n = N, .in = 2048, .out = 2056, .bias = true},
        {.n = N, .in = 2048, .out = 2048, .bias = true, .odd = true},
        {.n = N, .in = 2048, .out = 2048, .odd = true, .in_out = true},
    };
    struct gpu g;

    if (gpu_small() == 2)
        skip();
    open_fp8(&g, DEVICE_FP8_HYBRID);
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++)
        gpu_check(&g, linear_once, &c[i]);
    gpu_close(&g);
}

/* Whether the projection, run once more, gives those bytes. */
static bool gives(struct gpu *g, const struct linear_case *c, struct linear_pair *p,
                  const void *want, size_t bytes)
{
    void *now;
    bool same;

    linear_run(g, c, p, true);
    now = gpu_bytes(g, &p->out);
    same = memcmp(want, now, bytes) == 0;
    free(now);
    return same;
}

/* Weights kept in 8 bits are rounded again when the counts of changes rise. */
TEST(kept)
{
    struct linear_case c = {.n = N, .in = 2048, .out = 2048, .frozen = true};
    struct op_linear back;
    struct both other;
    struct linear_pair p;
    struct gpu g;
    void *fresh, *was;
    size_t bytes = (size_t)N * 2048 * 2;

    if (gpu_small() == 2)
        skip();
    open_fp8(&g, DEVICE_FP8_HYBRID);
    p = linear_arrays(&g, &c);
    other = gpu_random(&g, CKPT_BF16, 2048 * 2048, 0.02f);
    linear_run(&g, &c, &p, true);
    fresh = gpu_bytes(&g, &p.out);
    g.gpu->fp8_cache_bytes = 2 * (2048 * 2048 + 256);
    g.gpu->fp8_cache = g.gpu->ops->alloc(g.gpu, g.gpu->fp8_cache_bytes);
    for (int i = 0; i < 2; i++)
        assert_true(gives(&g, &c, &p, fresh, bytes));
    /* Frozen: a step of the optimizer changes nothing. */
    g.gpu->ops->copy(g.gpu, p.w.gpu, other.gpu, 2048 * 2048 * 2);
    g.gpu->stepped++;
    assert_true(gives(&g, &c, &p, fresh, bytes));
    g.gpu->loaded++;
    linear_run(&g, &c, &p, true);
    was = gpu_bytes(&g, &p.out);
    assert_memory_not_equal(fresh, was, bytes);
    /* Trained: once a step. */
    c.frozen = false;
    g.gpu->loaded++;
    linear_run(&g, &c, &p, true);
    g.gpu->ops->zero(g.gpu, p.w.gpu, 2048 * 2048 * 2);
    assert_true(gives(&g, &c, &p, was, bytes));
    g.gpu->stepped++;
    assert_false(gives(&g, &c, &p, was, bytes));
    free(was);
    /* The same where two calls compute the gradients of x and of the weights. */
    back = linear_op(&c, &p, true, true);
    back.proj.dw = NULL;
    g.gpu->ops->linear_bwd(g.gpu, &back);
    back = linear_op(&c, &p, true, true);
    back.dx = NULL;
    g.gpu->ops->linear_bwd(g.gpu, &back);
    was = gpu_bytes(&g, &p.out);
    g.gpu->ops->copy(g.gpu, p.w.gpu, other.gpu, 2048 * 2048 * 2);
    g.gpu->stepped++;
    assert_false(gives(&g, &c, &p, was, bytes));
    free(was);
    free(fresh);
    gpu_fine(&g);
    gpu_close(&g);
}

/* Two projections of one x, the second flagged so or not; the first may be another's. */
static void run_two(struct gpu *g, struct linear_pair p[3], int first, bool again,
                    void *bytes[3])
{
    struct linear_case c[] = {{.n = N, .in = 2048, .out = 2304}, {.n = N, .in = 2048, .out = 2048}};
    const int at[] = {first, 1};

    for (int back = 0; back < 2; back++)
        for (int i = 0; i < 2; i++) {
            struct op_linear op = linear_op(&c[i], &p[at[i]], true, back);

            op.x = first == 2 && i == 0 ? p[2].x.gpu : p[0].x.gpu;
            op.flags |= OP_LINEAR_OVERWRITE;
            if (again && i == 1)
                op.flags |= OP_LINEAR_SAME_X;
            if (back)
                g->gpu->ops->linear_bwd(g->gpu, &op);
            else
                g->gpu->ops->linear_fwd(g->gpu, &op);
        }
    bytes[0] = gpu_bytes(g, &p[1].out);
    bytes[1] = gpu_bytes(g, &p[1].dx);
    bytes[2] = gpu_bytes(g, &p[1].dw);
}

TEST(again)
{
    struct linear_case c = {.n = N, .in = 2048, .out = 2304};
    const size_t size[] = {N * 2048 * 2, N * 2048 * 2, 2048 * 2048 * 4};
    struct linear_pair p[3];
    void *want[3], *got[3];
    struct gpu g;

    if (gpu_small() == 2)
        skip();
    open_fp8(&g, DEVICE_FP8_HYBRID);
    for (int i = 0; i < 3; i++)
        p[i] = linear_arrays(&g, &c);
    p[1].out.n = N * 2048;
    p[1].dw.n = 2048 * 2048;
    run_two(&g, p, 0, false, want);
    for (int i = 0; i < 2; i++) {
        run_two(&g, p, i ? 2 : 0, i == 0, got);
        for (int k = 0; k < 3; k++) {
            assert_memory_equal(want[k], got[k], size[k]);
            free(got[k]);
        }
    }
    for (int k = 0; k < 3; k++)
        free(want[k]);
    gpu_fine(&g);
    gpu_close(&g);
}

/* tf32 rounds factors to ten bits after the point, and is off without the option. */
TEST(tf32)
{
    struct linear_case c = {.n = 512, .in = 512, .out = 512};
    double off[2];

    if (gpu_small() == 2)
        skip();
    for (int tf32 = 0; tf32 < 2; tf32++) {
        struct device_opts opts = {.name = "cuda", .weights = CKPT_F32, .tf32 = tf32};
        struct linear_pair p;
        struct gpu g;

        gpu_open_as(&g, &opts, &limits);
        p = linear_arrays(&g, &c);
        linear_run(&g, &c, &p, false);
        linear_run(&g, &c, &p, true);
        off[tf32] = distance(&g, &p.out);
        gpu_fine(&g);
        gpu_close(&g);
    }
    assert_true(off[0] < 1e-6);
    assert_true(off[1] > 1e-5 && off[1] < 1e-3);        /* 2^-11 / sqrt(3) a factor at most */
}
