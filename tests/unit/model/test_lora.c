/*
 * Adapters against PEFT 0.21: logits, loss, the gradient of everything trained and of nothing
 * else, five AdamW steps; and what an adapter_config.json may not ask for.
 */
#include "tests/unit/golden_model.h"

#include "trainer/model/lora.h"
#include "formats/families/role.h"

static const char *const goldens[] = {
    "bloom-qkv", "gpt2-conv1d", "llama-all-linear", "llama-dora", "llama-embed",
    "llama-patterns", "llama-tokens", "mixtral-attn", "t5-qv", "llama-tokens-tied", "bloom-tokens",
    "t5-tokens",
};

struct adapted {
    struct golden g;
    struct lora  *lora;
};

/* The saved tensors of an adapter into the weights. */
static void load_adapter(struct adapted *a, struct ckpt_source *src)
{
    const struct params *p = model_params(a->g.model);

    for (size_t i = 0; i < p->n; i++) {
        char name[256];
        int64_t n;

        if (!p->item[i].trainable)
            continue;
        params_saved_name(name, sizeof name, p, i, false);
        memcpy(resident_weight(a->g.weights, i), golden_floats(&a->g, src, name, &n),
               (size_t)p->item[i].numel * sizeof(float));
        assert_int_equal(n, p->item[i].numel);
    }
}

static void open_adapted(struct adapted *a, const char *name, enum recompute recompute, int threads)
{
    struct model_opts opts = {.max_tokens = 40, .max_docs = 3, .max_rows = 40, .max_enc = 40,
                              .train = true, .recompute = recompute};
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    char dir[200], base[220], adapter[220];
    json_t *config;

    snprintf(dir, sizeof dir, "tests/golden/lora/%s", name);
    snprintf(base, sizeof base, "%s/base", dir);
    snprintf(adapter, sizeof adapter, "%s/adapter", dir);
    config = golden_json(adapter, "adapter_config.json");
    OK(lora_new(&a->lora, config, &err), err);
    json_decref(config);
    opts.lora = a->lora;
    golden_open_dir(&a->g, base, dir, &opts, threads, NULL);
    src = golden_source("safetensors", adapter, "/adapter_model.safetensors");
    load_adapter(a, src);
    ckpt_source_close(src);
}

static void close_adapted(struct adapted *a)
{
    golden_close(&a->g);
    lora_free(a->lora);
}

/* Each document's last row, its last token fed after the others: as without a cache. */
static void check_cached(struct golden *g)
{
    struct ckpt_err err = {0};
    int64_t V = g->arch->vocab_size;
    int32_t rows[3], head[3], tail[3], first[64], last[3], n = 0;
    struct decode *d;
    float *found, *wanted;
    struct batch b;

    if (g->arch->stack != ARCH_DECODER)
        return;
    golden_batch(g, "", &b, NULL);
    for (int32_t i = 0; i < (int32_t)b.n_docs; i++) {
        rows[i] = b.doc_start[i + 1] - 1;
        head[i] = rows[i] - b.doc_start[i];
        tail[i] = 1;
        last[i] = b.ids[rows[i]];
        memcpy(first + n, b.ids + b.doc_start[i], (size_t)head[i] * sizeof *first);
        n += head[i];
    }
    found = ckpt_arena_alloc(&g->arena, (size_t)(b.n_docs * V), sizeof *found);
    wanted = ckpt_arena_alloc(&g->arena, (size_t)(b.n_docs * V), sizeof *wanted);
    OK(model_logits(g->model, resident_door(g->weights), &b, rows, b.n_docs, wanted, &err), err);
    OK(decode_new(&d, g->model, b.n_docs, 40, &err), err);
    OK(decode_step(d, resident_door(g->weights), first, head, b.n_docs, found, &err), err);
    OK(decode_step(d, resident_door(g->weights), last, tail, b.n_docs, found, &err), err);
    decode_free(d);
    for (int64_t i = 0; i < b.n_docs * V; i++)
        if (!(fabsf(found[i] - wanted[i]) <= 1e-5f))
            fail_msg("cached logit %d: %.8g, wanted %.8g", (int)i, (double)found[i],
                     (double)wanted[i]);
}

static void check_gradients(struct golden *g)
{
    const struct params *p = model_params(g->model);
    double loss = golden_number(g->json, "loss");
    struct batch b;

    golden_batch(g, "", &b, NULL);
    golden_near(golden_mean_grad(g, &b), loss, 1e-6, "loss");
    for (size_t i = 0; i < p->n; i++) {
        char name[256] = "grad.";
        int64_t n;

        if (!p->item[i].trainable) {
            assert_null(resident_grad(g->weights, i));
            continue;
        }
        params_saved_name(name + 5, sizeof name - 5, p, i, false);
        golden_close_to(resident_grad(g->weights, i), golden_floats(g, g->expect, name, &n),
                p->item[i].numel, 2e-5f, name);
    }
}

static void check_five_steps(struct golden *g)
{
    const struct params *p = model_params(g->model);
    const json_t *losses = json_object_get(g->json, "losses");
    size_t n = (size_t)p->grad_numel;
    float *moments = ckpt_arena_alloc(&g->arena, 2 * n, sizeof *moments);
    struct adamw o = {.lr = 2e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .grad_scale = 1};
    struct batch b;

    golden_batch(g, "", &b, NULL);
    for (o.step = 1; o.step <= 5; o.step++) {
        golden_near(golden_mean_grad(g, &b),
                    json_number_value(json_array_get(losses, (size_t)o.step - 1)), 1e-5,
                    "a step's loss");
        for (size_t i = 0; i < p->n; i++) {
            int64_t at = resident_grad(g->weights, i) - resident_grads(g->weights);

            struct adamw_run run = {.param = resident_weight(g->weights, i),
                                    .exp_avg = moments + at, .exp_avg_sq = moments + n + at,
                                    .grad = resident_grad(g->weights, i),
                                    .n = p->item[i].numel, .weight_decay = 0.01};

            if (p->item[i].trainable)
                g->dev->ops->adamw(g->dev, &run, 1, &o);
        }
    }
    golden_near(golden_mean_grad(g, &b), golden_number(g->json, "loss_after"), 1e-5,
                "loss_after");
    for (size_t i = 0; i < p->n; i++) {
        char name[256] = "final.";
        int64_t count;

        if (!p->item[i].trainable)
            continue;
        params_saved_name(name + 6, sizeof name - 6, p, i, false);
        /* A bias of keys moves no probability: its gradient is noise, which AdamW scales up. */
        golden_close_to(resident_weight(g->weights, i), golden_floats(g, g->expect, name, &count),
                p->item[i].numel, p->item[i].role == ROLE_QKV_B ? 1e-3f : 1e-4f, name);
    }
}

static void all(enum recompute recompute, int threads)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        struct adapted a;

        open_adapted(&a, goldens[i], recompute, threads);
        golden_check_logits(&a.g, "");
        check_gradients(&a.g);
        check_cached(&a.g);
        check_five_steps(&a.g);
        check_cached(&a.g);
        close_adapted(&a);
    }
}

TEST(adapters_train_as_peft_trains_them)
{
    all(RECOMPUTE_NONE, 1);
}

TEST(adapters_agree_when_blocks_are_recomputed_by_threads)
{
    all(RECOMPUTE_FULL, 3);
    all(RECOMPUTE_NORMS, 3);
}
