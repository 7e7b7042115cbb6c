/*
 * Every family with weights of 16 bits: losses within what rounding them may cost, by the words
 * beside the goldens; logits, losses, every gradient and greedy tokens those of the same rounded
 * weights in f32.
 */
#include "tests/unit/golden_model.h"

#include "trainer/model/generate.h"

static const struct model_opts train = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                        .max_enc = 320, .train = true};

/* Rounded weights, unit by unit; gradients are the resident ones. */
struct half {
    const struct params        *p;
    const struct model_weights *whole;
    const uint16_t             *weights;
};

static const void *acquire(void *ctx, int unit)
{
    const struct half *h = ctx;
    int64_t at = 0;

    for (int u = 0; u < unit; u++)
        at += h->p->unit_numel[u];
    return h->weights + at;
}

static void release(void *ctx, int unit)
{
    (void)ctx;
    (void)unit;
}

static void *grad(void *ctx, int unit)
{
    const struct half *h = ctx;

    return h->whole->grad(h->whole->ctx, unit);
}

static void grad_done(void *ctx, int unit)
{
    const struct half *h = ctx;

    h->whole->grad_done(h->whole->ctx, unit);
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

/* Eight tokens behind the batch's first five. */
static void continued(int32_t out[8], struct model *m, const struct model_weights *w,
                      const struct batch *b)
{
    struct generate_opts o = {.max_new_tokens = 8, .repetition_penalty = 1};
    struct generate_seq seq = {.prompt = b->n_enc ? b->enc_ids : b->ids, .n_prompt = 5, .out = out};
    struct ckpt_err err = {0};

    OK(generate_run(m, w, &o, &seq, 1, &err), err);
    assert_int_equal(seq.n_out, 8);
}

/* Within that share of the largest. */
static void check_near(const char *model, const char *what, const float *x, const float *y,
                       int64_t n, float share)
{
    float most = 0, apart = 0;

    for (int64_t i = 0; i < n; i++) {
        most = fmaxf(most, fabsf(y[i]));
        apart = fmaxf(apart, fabsf(x[i] - y[i]));
    }
    if (!(apart <= share * most + 1e-7f))
        fail_msg("%s: %s is off by %g of %g", model, what, (double)apart, (double)most);
}

static void check(const char *name, enum ckpt_dtype dtype, double cost)
{
    struct golden g;
    struct batch b;
    struct ckpt_err err = {0};
    struct device *dev;
    struct model *m;
    const struct params *p;
    struct found whole, half;
    struct model_weights door;
    int32_t *place, all[128];
    int32_t some[8], same[8];
    uint16_t *rounded;
    double wanted;

    golden_open(&g, name, &train, 2);
    p = model_params(g.model);
    OK(device_open_cpu(&dev, 2, &err), err);
    dev->grain = 0;
    dev->weight = dtype;
    OK(model_new(&m, g.arch, &train, dev, &err), err);
    rounded = ckpt_arena_alloc(&g.arena, (size_t)p->numel, sizeof *rounded);
    ckpt_convert(rounded, dtype, resident_weights(g.weights), CKPT_F32, (size_t)p->numel);
    ckpt_convert(resident_weights(g.weights), CKPT_F32, rounded, dtype, (size_t)p->numel);
    golden_batch(&g, "right", &b, &place);
    assert_true(b.n_tokens <= 128);
    for (int32_t i = 0; i < b.n_tokens; i++)
        all[i] = i;
    whole = run(&g, g.model, resident_door(g.weights), &b, all);
    door = (struct model_weights){.ctx = &(struct half){p, resident_door(g.weights), rounded},
                                  .acquire = acquire, .release = release, .grad = grad,
                                  .grad_done = grad_done};
    half = run(&g, m, &door, &b, all);
    wanted = json_number_value(json_object_get(g.json, "right.loss"));
    if (!(fabs(half.loss - wanted) <= cost * wanted))
        fail_msg("%s: loss %g, in f32 %g", name, half.loss, wanted);
    if (!(fabs(half.loss - whole.loss) <= 2e-6 * wanted))
        fail_msg("%s: loss %.9g, of the same weights in f32 %.9g", name, half.loss, whole.loss);
    check_near(name, "a logit", half.logits, whole.logits, b.n_tokens * g.arch->vocab_size, 1e-5f);
    for (size_t i = 0; i < p->n; i++) {
        int64_t at = resident_grad(g.weights, i) - resident_grads(g.weights);

        check_near(name, p->item[i].name, half.grads + at, whole.grads + at, p->item[i].numel,
                   5e-5f);
    }
    continued(some, g.model, resident_door(g.weights), &b);
    continued(same, m, &door, &b);
    assert_memory_equal(some, same, sizeof some);
    model_free(m);
    device_close(dev);
    golden_close(&g);
}

static const char *const models[] = {
    "bloom-a", "bloom-b", "opt-a", "opt-350m", "gpt2-a", "gpt2-b", "llama-a", "llama31",
    "mistral-sw", "qwen2-a", "qwen3-a", "phi3-a", "phi3-long", "mixtral-a", "mixtral-aux",
    "qwen3moe-a", "t5-v10", "t5-v11",
};

/* The words: 1e-2 of the loss in f32, 2e-2 for T5 and experts. */
static double cost_of(const char *name)
{
    return strncmp(name, "t5", 2) == 0 || strncmp(name, "mixtral", 7) == 0 ||
                   strncmp(name, "qwen3moe", 8) == 0 ? 2e-2 : 1e-2;
}

static void test_bf16_weights_cost_what_is_stated(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check(models[i], CKPT_BF16, cost_of(models[i]));
}

static void test_f16_weights_cost_an_eighth(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        check(models[i], CKPT_F16, cost_of(models[i]) / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bf16_weights_cost_what_is_stated),
        cmocka_unit_test(test_f16_weights_cost_an_eighth),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
