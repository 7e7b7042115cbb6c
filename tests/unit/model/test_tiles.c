/*
 * Products of bf16 tiles: each kernel that this CPU has, and the plain loop over the same
 * tiles, against sums in f64; and projections made of them against those with widened weights.
 */
#include "tests/unit/model_help.h"

#include <math.h>

#include "libckpt/convert.h"
#include "trainer/cpu/cpu.h"
#include "trainer/cpu/typed.h"

static uint32_t seed = 11;

/* A number in (-1, 1) that bf16 holds exactly. */
static float some(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)((int32_t)seed >> 24) * 0x1p-7f;
}

static void *buffer(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) & ~(size_t)63);

    assert_non_null(p);
    return p;
}

/* A test of each kernel; one that this processor lacks is skipped. */
#define TEST_KERNELS(name)                                                                     \
    static void name(enum tiles_kernel kernel);                                                \
    TEST(name##_plain)  { name(TILES_PLAIN); }                                                 \
    TEST(name##_avx512) { kernel_or_skip(TILES_AVX512); name(TILES_AVX512); }                  \
    TEST(name##_amx)    { kernel_or_skip(TILES_AMX); name(TILES_AMX); }                        \
    static void name(enum tiles_kernel kernel)

static void kernel_or_skip(enum tiles_kernel kernel)
{
    if (kernel > tiles_best())
        skip();
}

enum { MAX = 150 };

/* What a side is made of: element (i, k) is value[i * MAX + k]. */
static struct tiles_side side_of(void *to, const float *value, int64_t n, int64_t k, bool along,
                                 bool bf16)
{
    int64_t ld = (along ? k : n) + 3;

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++) {
            int64_t at = along ? i * ld + j : j * ld + i;

            if (bf16)
                ckpt_convert((uint16_t *)to + at, CKPT_BF16, &value[i * MAX + j], CKPT_F32, 1);
            else
                ((float *)to)[at] = value[i * MAX + j];
        }
    return (struct tiles_side){.at = to, .ld = ld, .along = along, .bf16 = bf16};
}

static void check_product(enum tiles_kernel kernel, int64_t m, int64_t n, int64_t k, int form)
{
    float *a = buffer(MAX * MAX * 4), *b = buffer(MAX * MAX * 4), *c = buffer(MAX * MAX * 4);
    void *left = buffer((MAX + 3) * (MAX + 3) * 4), *right = buffer((MAX + 3) * (MAX + 3) * 4);
    uint16_t *l = buffer((size_t)tiles_packed(m, k) * 2), *r = buffer((size_t)tiles_packed(n, k) * 2);
    struct tiles_side x, y;
    bool add = form & 16;
    int64_t half = k > 2 * TILE_K ? TILE_K : 0;

    for (int i = 0; i < MAX * MAX; i++) {
        a[i] = some();
        b[i] = some();
        c[i] = 0.5f;
    }
    x = side_of(left, a, m, k, form & 1, form & 2);
    y = side_of(right, b, n, k, form & 4, form & 8);
    tiles_pack(kernel, l, &x, false, 0, m, 0, k);
    /* In two halves of the sum, when it is long. */
    tiles_pack(kernel, r, &y, true, 0, n, 0, half);
    if (half)
        tiles_product(kernel, c, MAX, m, n, half, l, k, r, add);
    tiles_pack(kernel, r, &y, true, 0, n, half, k - half);
    tiles_product(kernel, c, MAX, m, n, k - half, l + half * TILE, k, r, add || half);
    for (int64_t i = 0; i < MAX; i++)
        for (int64_t j = 0; j < MAX; j++) {
            double sum = i >= m || j >= n || add ? 0.5 : 0;

            for (int64_t t = 0; t < k && i < m && j < n; t++)
                sum += (double)a[i * MAX + t] * (double)b[j * MAX + t];
            if (!(fabs(sum - (double)c[i * MAX + j]) <= 1e-5))
                fail_msg("kernel %d, form %d, [%d, %d] of %d x %d x %d is %.8g, wanted %.8g",
                         (int)kernel, form, (int)i, (int)j, (int)m, (int)n, (int)k,
                         (double)c[i * MAX + j], sum);
        }
    free(a);
    free(b);
    free(c);
    free(left);
    free(right);
    free(l);
    free(r);
}

TEST_KERNELS(products_of_tiles_are_those_of_the_numbers)
{
    static const int64_t size[][3] = {{1, 1, 1},     {16, 16, 32}, {17, 31, 33}, {32, 32, 64},
                                      {48, 80, 128}, {33, 64, 97}, {96, 49, 150}, {150, 150, 96}};

    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++)
        for (int form = 0; form < 32; form++)
            check_product(kernel, size[i][0], size[i][1], size[i][2], form);
}

/* f32 is rounded to nearest, ties to even; NaN and infinity stay. */
TEST_KERNELS(packing_rounds_to_nearest)
{
    static const uint32_t from[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0xbf80ffff,
                                    0x7f800000, 0xff800000, 0x7f7fffff, 0x7fc00001, 0x00000000};
    static const uint16_t to[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbf81,
                                  0x7f80, 0xff80, 0x7f80, 0x7fc0, 0x0000};
    float x[16 * 32];
    uint16_t packed[16 * 32];
    struct tiles_side s = {.at = x, .ld = 32, .along = true};

    for (int i = 0; i < 16 * 32; i++)
        memcpy(&x[i], &from[i % 10], 4);
    tiles_pack(kernel, packed, &s, false, 0, 16, 0, 32);
    for (int i = 0; i < 16 * 32; i++)
        assert_int_equal(packed[i], to[i % 10]);
}

enum { N = 75, IN = 140, OUT = 100, LD = 120 };

struct arrays {
    float x[N * IN], dout[N * LD], w[IN * OUT], b[OUT], res[N * OUT], pre_in[N * IN];
};

struct results {
    float out[N * LD], pre[N * OUT], dx[N * IN], x[N * IN], dw[IN * OUT], db[OUT];
};

struct linear_case {
    const char *name;
    bool        in_out, bias, residual, pre, dx_add, wide_rows;
    enum op_act act, x_act;
};

static void project(struct device *dev, const struct linear_case *c, const struct arrays *v,
                    const uint16_t *w, const uint16_t *b, struct results *r)
{
    struct op_linear a = {
        .out = r->out,
        .pre = c->pre ? r->pre : NULL,
        .x = r->x,
        .dx = r->dx,
        .proj.dw = r->dw,
        .proj.db = r->db,
        .proj.w = w,
        .proj.b = c->bias ? b : NULL,
        .residual = c->residual ? v->res : NULL,
        .dout = v->dout,
        .act = c->act,
        .n = N,
        .n_in = IN,
        .n_out = OUT,
        .out_ld = c->wide_rows ? LD : 0,
        .flags = (c->in_out ? OP_LINEAR_IN_OUT : 0u) | (c->dx_add ? OP_LINEAR_DX_ADD : 0u),
    };

    memset(r, 0, sizeof *r);
    memcpy(r->x, v->x, sizeof v->x);
    for (int i = 0; i < N * IN && c->dx_add; i++)
        r->dx[i] = 0.25f;
    for (int i = 0; i < IN * OUT; i++)
        r->dw[i] = 0.125f;
    dev->ops->linear_fwd(dev, &a);
    a.x_act = c->x_act;
    a.x_pre = c->x_act == OP_ACT_NONE ? NULL : v->pre_in;
    dev->ops->linear_bwd(dev, &a);
    assert_int_equal(dev->err.code, 0);
}

static void same(const char *name, const char *what, const float *a, const float *b, size_t n,
                 float tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= tolerance))
            fail_msg("%s: %s[%zu] is %.8g, with widened weights %.8g", name, what, i, (double)a[i],
                     (double)b[i]);
}

/* A device with weights of bf16, that kernel, and workspace for its own sizes. */
static struct device *open_tiles(enum tiles_kernel kernel, const struct op_limits *limits)
{
    struct device *dev = cpu_device(3);

    dev->weight = CKPT_BF16;
    ((struct cpu_device *)dev)->kernel = kernel;
    dev->work_bytes = dev->ops->workspace(dev, limits);
    dev->work = dev->ops->alloc(dev, dev->work_bytes);
    return dev;
}

TEST_KERNELS(projections_are_those_of_widened_weights)
{
    static const struct linear_case cases[] = {
        {.name = "plain"},
        {.name = "bias, residual", .bias = true, .residual = true},
        {.name = "in-out", .in_out = true, .bias = true, .dx_add = true},
        {.name = "act", .act = OP_ACT_GELU_TANH, .pre = true, .bias = true},
        {.name = "in-out, act", .in_out = true, .act = OP_ACT_SILU},
        {.name = "x recomputed", .x_act = OP_ACT_GELU_TANH},
        {.name = "rows apart", .wide_rows = true, .dx_add = true},
    };
    static struct arrays v;
    static struct results tiles, wide;
    static uint16_t w[IN * OUT], b[OUT];
    struct op_limits limits = {.n = N, .n_rows = 1, .dim = IN, .n_head = 1, .n_kv = 1, .vocab = 1,
                               .max_doc = 1, .head_dim = IN, .ff = IN, .train = true};
    struct device *dev;

    for (size_t i = 0; i < sizeof v / sizeof(float); i++)
        ((float *)&v)[i] = some();
    ckpt_convert(w, CKPT_BF16, v.w, CKPT_F32, IN * OUT);
    ckpt_convert(b, CKPT_BF16, v.b, CKPT_F32, OUT);
    dev = open_tiles(kernel, &limits);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct linear_case *c = &cases[i];
        /* What was recomputed is rounded as it goes into dw. */
        float loose = c->x_act == OP_ACT_NONE ? 2e-5f : 2e-2f;

        ((struct cpu_device *)dev)->kernel = kernel;
        project(dev, c, &v, w, b, &tiles);
        ((struct cpu_device *)dev)->kernel = TILES_NONE;
        project(dev, c, &v, w, b, &wide);
        same(c->name, "out", tiles.out, wide.out, N * LD, 5e-5f);
        same(c->name, "pre", tiles.pre, wide.pre, N * OUT, 2e-5f);
        same(c->name, "dx", tiles.dx, wide.dx, N * IN, 2e-5f);
        same(c->name, "x", tiles.x, wide.x, N * IN, 0);
        same(c->name, "dw", tiles.dw, wide.dw, IN * OUT, loose);
        same(c->name, "db", tiles.db, wide.db, OUT, 2e-5f);
    }
    dev->ops->free(dev, dev->work);
    device_close(dev);
}

enum { ROWS = 530, DIM = 40, VOCAB = 77 };      /* two chunks */

struct head {
    float nll[ROWS], dx[ROWS * DIM], dw[VOCAB * DIM];
};

static void head_of(struct device *dev, enum tiles_kernel kernel, const float *x,
                    const uint16_t *w, const int32_t *targets, struct head *h)
{
    ((struct cpu_device *)dev)->kernel = kernel;
    memset(h, 0, sizeof *h);
    dev->ops->head_loss(dev, &(struct op_head){
        .nll = h->nll, .dx = h->dx, .dw = h->dw, .x = x, .w = w, .targets = targets, .n = ROWS,
        .dim = DIM, .vocab = VOCAB, .mul = 0.5f, .scale = 1.0f});
    assert_int_equal(dev->err.code, 0);
}

/* Gradients of logits are rounded on their way into the products. */
TEST_KERNELS(heads_are_those_of_widened_weights)
{
    static float x[ROWS * DIM], wide_w[VOCAB * DIM];
    static uint16_t w[VOCAB * DIM];
    static int32_t targets[ROWS];
    static struct head tiles, wide;
    struct op_limits limits = {.n = ROWS, .n_rows = ROWS, .dim = DIM, .n_head = 1, .n_kv = 1,
                               .max_doc = 1, .head_dim = DIM, .ff = DIM, .vocab = VOCAB,
                               .train = true};
    struct device *dev;

    for (int i = 0; i < ROWS * DIM; i++)
        x[i] = some();
    for (int i = 0; i < VOCAB * DIM; i++)
        wide_w[i] = some();
    for (int i = 0; i < ROWS; i++)
        targets[i] = i % VOCAB;
    ckpt_convert(w, CKPT_BF16, wide_w, CKPT_F32, VOCAB * DIM);
    dev = open_tiles(kernel, &limits);
    head_of(dev, kernel, x, w, targets, &tiles);
    head_of(dev, TILES_NONE, x, w, targets, &wide);
    same("head", "nll", tiles.nll, wide.nll, ROWS, 2e-5f);
    same("head", "dx", tiles.dx, wide.dx, ROWS * DIM, 4e-3f);
    same("head", "dw", tiles.dw, wide.dw, VOCAB * DIM, 2e-2f);
    dev->ops->free(dev, dev->work);
    device_close(dev);
}
