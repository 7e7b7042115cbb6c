/*
 * Weights of 16 bits: products with them, and whole models, are those of the same numbers held
 * as f32.
 */
#include "tests/unit/zero_side.h"

#include "trainer/cpu/gemm.h"
#include "trainer/cpu/typed.h"

static const enum ckpt_dtype halves[] = {CKPT_BF16, CKPT_F16};

static uint32_t seed = 7;

static float some(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed * 0x1p-31f;
}

/* y against sums in f64; W's element (i, j) of the product is w[i * di + j * dj], alpha 0.5. */
static void check_product(const float *y, const float *x, const float *w, const float *before,
                          int64_t m, int64_t n, int64_t k, int64_t dn, int64_t dk, float beta)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, size = 0;

            for (int64_t r = 0; r < k; r++) {
                sum += 0.5 * (double)x[i * k + r] * (double)w[j * dn + r * dk];
                size += fabs((double)x[i * k + r] * (double)w[j * dn + r * dk]);
            }
            sum += (double)beta * (double)before[i * n + j];
            if (!(fabs(sum - (double)y[i * n + j]) <= 1e-6 * (size + 1)))
                fail_msg("[%d, %d] of %d x %d x %d is %.8g, wanted %.8g", (int)i, (int)j, (int)m,
                         (int)n, (int)k, (double)y[i * n + j], sum);
        }
}

static void products_of(struct device *dev, int64_t m, int64_t n, int64_t k, float beta)
{
    float x[40 * 140], w[140 * 140], before[40 * 140], y[40 * 140];
    uint16_t half[140 * 140];

    for (int64_t i = 0; i < m * k; i++)
        x[i] = some();
    for (int64_t i = 0; i < n * k; i++)
        w[i] = some();
    for (int64_t i = 0; i < m * n; i++)
        before[i] = some();
    ckpt_convert(half, dev->weight, w, CKPT_F32, (size_t)(n * k));
    ckpt_convert(w, CKPT_F32, half, dev->weight, (size_t)(n * k));
    memcpy(y, before, sizeof y);
    typed_nt(dev, m, n, k, 0.5f, x, k, half, k, beta, y, n);
    check_product(y, x, w, before, m, n, k, k, 1, beta);
    memcpy(y, before, sizeof y);
    typed_nn(dev, m, n, k, 0.5f, x, k, half, n, beta, y, n);
    check_product(y, x, w, before, m, n, k, 1, n, beta);
}

TEST(typed_products_are_those_of_the_wide_numbers)
{
    static const int64_t size[][3] = {{1, 1, 1},   {1, 7, 9},    {1, 33, 64}, {2, 64, 31},
                                      {4, 17, 41}, {5, 24, 130}, {37, 129, 63}};

    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
            struct device *dev = cpu_device(1);

            dev->weight = halves[t];
            ((struct cpu_device *)dev)->kernel = TILES_NONE;
            dev->work_bytes = typed_reserve(dev);
            dev->work = dev->ops->alloc(dev, dev->work_bytes);
            products_of(dev, size[i][0], size[i][1], size[i][2], 0);
            products_of(dev, size[i][0], size[i][1], size[i][2], 1);
            products_of(dev, size[i][0], size[i][1], size[i][2], 0.25f);
            dev->ops->free(dev, dev->work);
            device_close(dev);
        }
}

/* Weights of the golden model, rounded to the type: what both sides start from. */
struct rounded {
    struct golden *g;
    enum ckpt_dtype type;
};

static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    const struct rounded *r = ctx;
    const float *from = resident_weight(r->g->weights, i) + start;

    (void)err;
    for (int64_t j = 0; j < count; j++) {
        uint16_t half;

        ckpt_convert(&half, r->type, &from[j], CKPT_F32, 1);
        ckpt_convert(&dst[j], CKPT_F32, &half, r->type, 1);
    }
    return 0;
}

/* A model whose weights have the type, over the same numbers; gives its mean loss. */
static double open_side(struct side *s, struct golden *g, enum ckpt_dtype weight,
                        enum ckpt_dtype rounded, const struct model_opts *opts)
{
    struct device *dev = cpu_device(2);
    struct ckpt_err err = {0};
    struct rounded r = {g, rounded};
    struct batch b;
    double loss;

    dev->weight = weight;
    ((struct cpu_device *)dev)->kernel = TILES_NONE;        /* activations stay f32 */
    side_open(s, g, dev, opts, &(struct zero_opts){.train = opts->train});
    OK(zero_fill(s->zero, ZERO_MASTER, fill, &r, &err), err);
    golden_batch(g, "right", &b, NULL);
    if (opts->train) {
        zero_begin(s->zero);
        OK(model_loss_grad(s->model, zero_weights(s->zero), &b, 1.0f / (float)b.n_rows, &loss,
                           &err), err);
    } else {
        OK(model_loss(s->model, zero_weights(s->zero), &b, &loss, NULL, &err), err);
    }
    return loss / (double)b.n_rows;
}

/* Gradients within 1e-4 of each parameter's largest: sums are made in another order. */
static void same_gradients(const struct side *a, const struct side *b)
{
    const struct params *p = model_params(a->model);

    for (size_t i = 0; i < p->n; i++) {
        struct flat_piece at = flat_grad_piece(zero_flat(a->zero), i, 0);

        golden_close_to(zero_grads(b->zero) + at.at, zero_grads(a->zero) + at.at, at.count, 1e-4f,
                        p->item[i].name);
    }
}

static void same_model(const char *name, enum ckpt_dtype type, bool train)
{
    struct model_opts opts = {.max_tokens = 160, .max_docs = 8, .max_rows = 160, .train = train};
    struct side wide, narrow;
    struct golden g;
    double found, wanted;

    golden_open(&g, name, &opts, 1);
    wanted = open_side(&wide, &g, CKPT_F32, type, &opts);
    found = open_side(&narrow, &g, type, type, &opts);
    golden_near(found, wanted, 1e-6, name);
    golden_near(found, golden_number(g.json, "right.loss"), 2e-2, name);
    if (train)
        same_gradients(&wide, &narrow);
    side_close(&wide);
    side_close(&narrow);
    golden_close(&g);
}

TEST(typed_models_are_those_of_the_wide_numbers)
{
    static const char *const models[] = {"bloom-a", "opt-350m", "opt-bare", "gpt2-a", "llama-a",
                                         "qwen3-a", "phi3-a", "mixtral-a"};

    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        for (size_t t = 0; t < 2; t++) {
            same_model(models[i], halves[t], true);
            same_model(models[i], halves[t], false);
        }
}

/* -- long products ---------------------------------------------------------------------------- */

enum { LONG_N = 2100, LONG_K = 1100, LONG_M = 4007 };

/* Arrays of a product of more than 2^33 multiply-adds. */
struct longer {
    struct device *dev;
    float         *x, *w, *y, *want;
    void          *work;
};

static struct longer longer(enum ckpt_dtype weight, bool by_row)
{
    struct longer p = {.dev = cpu_device(1)};
    size_t n = (size_t)LONG_M * LONG_N;

    p.dev->weight = weight;
    p.dev->by_row = by_row;
    p.dev->work_bytes = typed_reserve(p.dev);
    p.dev->work = p.work = malloc(p.dev->work_bytes + 64);
    p.x = malloc((size_t)LONG_M * LONG_K * sizeof(float));
    p.w = malloc((size_t)LONG_N * LONG_K * sizeof(float));
    p.y = malloc(n * sizeof(float));
    p.want = malloc(n * sizeof(float));
    for (size_t i = 0; i < (size_t)LONG_M * LONG_K; i++)
        p.x[i] = some();
    for (size_t i = 0; i < (size_t)LONG_N * LONG_K; i++)
        p.w[i] = some();
    for (size_t i = 0; i < n; i++)
        p.y[i] = p.want[i] = 0.25f;
    return p;
}

static void longer_release(struct longer *p)
{
    free(p->x);
    free(p->w);
    free(p->y);
    free(p->want);
    free(p->work);
    device_close(p->dev);
}

static void multiply(struct longer *p, bool nn, float beta)
{
    if (nn)
        typed_nn(p->dev, LONG_M, LONG_N, LONG_K, 1, p->x, LONG_K, p->w, LONG_N, beta, p->y, LONG_N);
    else
        typed_nt(p->dev, LONG_M, LONG_N, LONG_K, 1, p->x, LONG_K, p->w, LONG_K, beta, p->y, LONG_N);
}

/* As one call of OpenBLAS has them. */
TEST(parts_of_a_long_product_have_the_bits_of_the_whole)
{
    struct longer p = longer(CKPT_F32, false);

    gemm_nt(LONG_M, LONG_N, LONG_K, 1, p.x, LONG_K, p.w, LONG_K, 1, p.want, LONG_N);
    multiply(&p, false, 1);
    assert_memory_equal(p.y, p.want, (size_t)LONG_M * LONG_N * sizeof(float));
    gemm_nn(LONG_M, LONG_N, LONG_K, 1, p.x, LONG_K, p.w, LONG_N, 0, p.want, LONG_N);
    multiply(&p, true, 0);
    assert_memory_equal(p.y, p.want, (size_t)LONG_M * LONG_N * sizeof(float));
    longer_release(&p);
}

TEST(a_stop_ends_a_long_product)
{
    static const volatile int stop = 1;

    for (int i = 0; i < 3; i++) {
        struct longer p = longer(i == 2 ? CKPT_BF16 : CKPT_F32, i == 1);
        const float *last = p.y + (size_t)LONG_M * LONG_N - 1;

        p.dev->stop = &stop;
        multiply(&p, i == 1, 0);
        assert_true(p.y[0] != 0.25f);   /* the first part: whoever calls has just asked */
        assert_true(*last == 0.25f);
        longer_release(&p);
    }
}
