/*
 * Every family with weights of 16 bits: losses within what rounding them may cost, by the words
 * beside the goldens.  Where activations stay f32, logits, losses, every gradient and greedy tokens
 * are those of the same rounded weights in f32.  Products of bf16 by the CPU's own instructions
 * round activations too: these cost no more than transformers' models in bf16.
 */
#include "tests/unit/golden_model.h"
#include "tests/unit/half_errors.h"

#include "trainer/cpu/cpu.h"
#include "trainer/model/generate/generate.h"

static const struct model_opts train = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                        .max_enc = 320, .train = true};

/* Rounded weights, layer by layer; gradients are the resident ones. */
struct half {
    const struct params        *p;
    const struct model_weights *whole;
    const uint16_t             *weights;
};

static const void *acquire(void *ctx, int layer)
{
    const struct half *h = ctx;
    int64_t at = 0;

    for (int u = 0; u < layer; u++)
        at += h->p->layer_numel[u];
    return h->weights + at;
}

static void release(void *ctx, int layer)
{
    (void)ctx;
    (void)layer;
}

static void *grad(void *ctx, int layer)
{
    const struct half *h = ctx;

    return h->whole->grad(h->whole->ctx, layer);
}

static void grad_done(void *ctx, int layer)
{
    const struct half *h = ctx;

    h->whole->grad_done(h->whole->ctx, layer);
}

/* What one way of holding weights gives; in the golden's arena. */
struct found {
    double loss;
    float *grads, *logits;
};

static struct found run(struct golden *g, struct model *m, const struct model_weights *w,
                        const struct batch *b, const int32_t *all)
{
    size_t n = (size_t)model_params(m)->grad_numel;
    size_t logits = (size_t)(b->n_tokens * g->arch->vocab_size);
    struct found f = {.grads = ckpt_arena_alloc(&g->arena, n, sizeof *f.grads),
                      .logits = ckpt_arena_alloc(&g->arena, logits, sizeof *f.logits)};
    struct ckpt_err err = {0};
    double sum;

    memset(resident_grads(g->weights), 0, n * sizeof *f.grads);
    OK(model_loss_grad(m, w, b, 1.0f / (float)b->n_rows, &sum, &err), err);
    f.loss = sum / (double)b->n_rows;
    memcpy(f.grads, resident_grads(g->weights), n * sizeof *f.grads);
    OK(model_logits(m, w, b, all, b->n_tokens, f.logits, &err), err);
    return f;
}

/* Eight tokens after the batch's first five. */
static void continued(int32_t out[8], struct model *m, const struct model_weights *w,
                      const struct batch *b)
{
    struct generate_opts o = {.max_new_tokens = 8, .repetition_penalty = 1};
    struct generate_seq seq = {.prompt = b->n_enc ? b->enc_ids : b->ids, .n_prompt = 5, .out = out};
    struct ckpt_err err = {0};

    OK(generate_run(m, w, &o, &seq, 1, &err), err);
    assert_int_equal(seq.n_out, 8);
}

/* A golden model twice: its weights rounded to a type and widened again, and as they are rounded. */
struct twice {
    struct golden   g;
    struct batch    b;
    struct device  *dev;
    struct model   *m;
    struct half     weights;
    struct model_weights door;
    struct found    whole, half;
    double          wanted;             /* the loss of the weights that were not rounded */
};

static void twice_open(struct twice *t, const char *name, enum ckpt_dtype dtype,
                       enum tiles_kernel kernel, int32_t all[128])
{
    struct ckpt_err err = {0};
    const struct params *p;
    uint16_t *rounded;

    golden_open(&t->g, name, &train, 2);
    p = model_params(t->g.model);
    t->dev = cpu_device(2);
    t->dev->weight = dtype;
    ((struct cpu_device *)t->dev)->kernel = kernel;
    OK(model_new(&t->m, t->g.arch, &train, t->dev, &err), err);
    rounded = ckpt_arena_alloc(&t->g.arena, (size_t)p->numel, sizeof *rounded);
    ckpt_convert(rounded, dtype, resident_weights(t->g.weights), CKPT_F32, (size_t)p->numel);
    ckpt_convert(resident_weights(t->g.weights), CKPT_F32, rounded, dtype, (size_t)p->numel);
    golden_batch(&t->g, "right", &t->b, NULL);
    assert_true(t->b.n_tokens <= 128);
    for (int32_t i = 0; i < t->b.n_tokens; i++)
        all[i] = i;
    t->weights = (struct half){p, resident_door(t->g.weights), rounded};
    t->door = (struct model_weights){.ctx = &t->weights, .acquire = acquire, .release = release,
                                     .grad = grad, .grad_done = grad_done};
    t->whole = run(&t->g, t->g.model, resident_door(t->g.weights), &t->b, all);
    t->half = run(&t->g, t->m, &t->door, &t->b, all);
    t->wanted = golden_number(t->g.json, "right.loss");
}

static void twice_close(struct twice *t)
{
    model_free(t->m);
    device_close(t->dev);
    golden_close(&t->g);
}

static void check(const char *name, enum ckpt_dtype dtype, double cost)
{
    struct twice t;
    int32_t some[8], same[8], all[128];
    const struct params *p;

    twice_open(&t, name, dtype, TILES_NONE, all);
    p = t.weights.p;
    if (!(fabs(t.half.loss - t.wanted) <= cost * t.wanted))
        fail_msg("%s: loss %g, in f32 %g", name, t.half.loss, t.wanted);
    if (!(fabs(t.half.loss - t.whole.loss) <= 2e-6 * t.wanted))
        fail_msg("%s: loss %.9g, of the same weights in f32 %.9g", name, t.half.loss,
                 t.whole.loss);
    golden_close_to(t.half.logits, t.whole.logits, t.b.n_tokens * t.g.arch->vocab_size, 1e-5f,
                    name);
    for (size_t i = 0; i < p->n; i++) {
        int64_t at = resident_grad(t.g.weights, i) - resident_grads(t.g.weights);

        golden_close_to(t.half.grads + at, t.whole.grads + at, p->item[i].numel, 5e-5f,
                        p->item[i].name);
    }
    continued(some, t.g.model, resident_door(t.g.weights), &t.b);
    continued(same, t.m, &t.door, &t.b);
    assert_memory_equal(some, same, sizeof some);
    twice_close(&t);
}

/* The norm of x - y, or of y without x. */
static double norm_of(const float *x, const float *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = x ? (double)x[i] - (double)y[i] : (double)y[i];

        sum += d * d;
    }
    return sqrt(sum);
}

static void check_tiles(const char *name, enum tiles_kernel kernel, double cost)
{
    struct bounds may = half_bounds(name, CKPT_BF16);
    struct twice t;
    const struct params *p;
    int32_t all[128];
    double whole, off;

    twice_open(&t, name, CKPT_BF16, kernel, all);
    p = t.weights.p;
    if (!(fabs(t.half.loss - t.wanted) <= cost * t.wanted))
        fail_msg("%s: loss %g, in f32 %g", name, t.half.loss, t.wanted);
    assert_true(t.half.loss != t.whole.loss);           /* the tiles were taken */
    golden_close_to(t.half.logits, t.whole.logits, t.b.n_tokens * t.g.arch->vocab_size,
                    (float)may.logits, name);
    whole = norm_of(NULL, t.whole.grads, p->grad_numel);
    off = norm_of(t.half.grads, t.whole.grads, p->grad_numel);
    if (!(off <= may.all * whole))
        fail_msg("%s: all gradients are off by %g of %g", name, off, whole);
    for (size_t i = 0; i < p->n; i++) {
        int64_t at = resident_grad(t.g.weights, i) - resident_grads(t.g.weights);
        double norm = norm_of(NULL, t.whole.grads + at, p->item[i].numel);

        off = norm_of(t.half.grads + at, t.whole.grads + at, p->item[i].numel);
        if (!(off <= may.gradient * (norm + 3e-3 * whole)))
            fail_msg("%s: %s: gradient is off by %g of %g, %g of all", name, p->item[i].name, off,
                     norm, whole);
    }
    twice_close(&t);
}

/* The words: 1e-2 of the loss in f32, 2e-2 for T5 and experts. */
static double cost_of(const char *name)
{
    return strncmp(name, "t5", 2) == 0 || strncmp(name, "mixtral", 7) == 0 ||
                   strncmp(name, "qwen3moe", 8) == 0 ? 2e-2 : 1e-2;
}

TEST(bf16_weights_cost_what_is_stated)
{
    for (size_t i = 0; i < GOLDEN_MODELS; i++)
        check(golden_models[i], CKPT_BF16, cost_of(golden_models[i]));
}

TEST(f16_weights_cost_an_eighth)
{
    for (size_t i = 0; i < GOLDEN_MODELS; i++)
        check(golden_models[i], CKPT_F16, cost_of(golden_models[i]) / 8);
}

static void check_products(enum tiles_kernel kernel)
{
    if (kernel > TILES_PLAIN && kernel > tiles_best())
        skip();
    for (size_t i = 0; i < GOLDEN_MODELS; i++)
        check_tiles(golden_models[i], kernel, cost_of(golden_models[i]));
}

TEST(bf16_products_cost_what_transformers_do) { check_products(TILES_PLAIN); }
TEST(bf16_products_of_avx512_do)              { check_products(TILES_AVX512); }
TEST(bf16_products_of_amx_do)                 { check_products(TILES_AMX); }
