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
    struct params plain;                /* without the adapter */
};

static json_t *json_of(const char *path, const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    struct ckpt_dir *dir;
    json_t *json;

    OK(ckpt_dir_open(&dir, path, 0, &err), err);
    OK(ckpt_file_open_at(&file, dir, name, &err), err);
    OK(ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_STRICT, &err), err);
    ckpt_file_close(file);
    ckpt_dir_close(dir);
    return json;
}

/* The saved tensors of an adapter, or with a prefix those of the golden, into the weights. */
static void load_adapter(struct adapted *a, struct ckpt_source *src, const char *prefix)
{
    const struct params *p = model_params(a->g.model);

    for (size_t i = 0; i < p->n; i++) {
        char name[256], whole[300];
        int64_t n;

        if (!p->item[i].trainable)
            continue;
        params_saved_name(name, sizeof name, p, i, false);
        snprintf(whole, sizeof whole, "%s%s", prefix, name);
        memcpy(resident_weight(a->g.weights, i), golden_floats(&a->g, src, whole, &n),
               (size_t)p->item[i].numel * sizeof(float));
        assert_int_equal(n, p->item[i].numel);
    }
}

static void load_base(struct adapted *a, const char *path)
{
    const struct params *p = model_params(a->g.model);
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    size_t found = 0;

    OK(ckpt_open_as(&src, "hf", path, NULL, &err), err);
    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        size_t i = params_find(p, ckpt_source_tensor(src, t)->name);
        int64_t n;
        const float *x = golden_floats(&a->g, src, ckpt_source_tensor(src, t)->name, &n);

        if (i == SIZE_MAX)
            fail_msg("%s is no parameter", ckpt_source_tensor(src, t)->name);
        memcpy(resident_weight(a->g.weights, i), x, (size_t)n * sizeof *x);
        found++;
    }
    assert_int_equal(found, a->plain.n);
    ckpt_source_close(src);
}

static void open_adapted(struct adapted *a, const char *name, enum recompute recompute, int threads)
{
    struct model_opts opts = {.max_tokens = 40, .max_docs = 3, .max_rows = 40, .max_enc = 40, .train = true,
                              .recompute = recompute};
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    struct ckpt_dir *dir;
    char path[200], adapter[256];
    json_t *config;

    memset(a, 0, sizeof *a);
    snprintf(path, sizeof path, "tests/golden/lora/%s/base", name);
    OK(ckpt_dir_open(&dir, path, 0, &err), err);
    OK(arch_read(&a->g.arch, dir, "config.json", &err), err);
    ckpt_dir_close(dir);
    snprintf(adapter, sizeof adapter, "tests/golden/lora/%s/adapter", name);
    config = json_of(adapter, "adapter_config.json");
    OK(lora_new(&a->lora, config, &err), err);
    json_decref(config);
    opts.lora = a->lora;
    OK(device_open_cpu(&a->g.dev, threads, &err), err);
    a->g.dev->grain = 0;
    OK(params_build(&a->plain, a->g.arch, NULL, &err), err);
    OK(model_new(&a->g.model, a->g.arch, &opts, a->g.dev, &err), err);
    OK(resident_new(&a->g.weights, model_params(a->g.model), true, a->g.dev, &err), err);
    load_base(a, path);
    snprintf(adapter, sizeof adapter,
             "tests/golden/lora/%s/adapter/adapter_model.safetensors", name);
    OK(ckpt_open_as(&src, "safetensors", adapter, NULL, &err), err);
    load_adapter(a, src, "");
    ckpt_source_close(src);
    snprintf(adapter, sizeof adapter, "tests/golden/lora/%s/golden.safetensors", name);
    OK(ckpt_open_as(&a->g.expect, "safetensors", adapter, NULL, &err), err);
    snprintf(adapter, sizeof adapter, "tests/golden/lora/%s", name);
    a->g.json = json_of(adapter, "golden.json");
}

static void close_adapted(struct adapted *a)
{
    params_release(&a->plain);
    golden_close(&a->g);
    lora_free(a->lora);
}

static void check_logits(struct golden *g)
{
    struct ckpt_err err = {0};
    int64_t V = g->arch->vocab_size, n;
    int32_t *place, rows[64];
    float *found, *wanted;
    struct batch b;

    golden_batch(g, "", &b, &place);
    for (int32_t i = 0; i < (int32_t)b.n_tokens; i++)
        rows[i] = i;
    found = ckpt_arena_alloc(&g->arena, (size_t)(b.n_tokens * V), sizeof *found);
    OK(model_logits(g->model, resident_door(g->weights), &b, rows, b.n_tokens, found, &err), err);
    wanted = golden_floats(g, g->expect, "logits", &n);
    for (int64_t i = 0; i < b.n_tokens; i++)
        for (int64_t j = 0; j < V; j++)
            if (!(fabsf(found[i * V + j] - wanted[place[i] * V + j]) <= 1e-5f))
                fail_msg("logits row %d id %d: %.8g, wanted %.8g", (int)i, (int)j,
                         (double)found[i * V + j], (double)wanted[place[i] * V + j]);
}

/* Each document's last row, its last token fed behind the others: as without a cache. */
static void check_cached(struct golden *g)
{
    struct ckpt_err err = {0};
    int64_t V = g->arch->vocab_size;
    int32_t *place, rows[3], head[3], tail[3], first[64], last[3], n = 0;
    struct decode *d;
    float *found, *wanted;
    struct batch b;

    if (g->arch->stack != ARCH_DECODER)
        return;
    golden_batch(g, "", &b, &place);
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

/* The loss and its gradients into the resident buffers. */
static double loss_grad(struct golden *g)
{
    struct ckpt_err err = {0};
    int32_t *place;
    struct batch b;
    double sum;

    golden_batch(g, "", &b, &place);
    g->dev->ops->zero(g->dev, resident_grads(g->weights),
                      (size_t)model_params(g->model)->grad_numel * sizeof(float));
    OK(model_loss_grad(g->model, resident_door(g->weights), &b, 1.0f / (float)b.n_rows, &sum,
                       &err), err);
    return sum / (double)b.n_rows;
}

static void near(double found, double wanted, double relative, const char *what)
{
    if (!(fabs(found - wanted) <= relative * fabs(wanted)))
        fail_msg("%s is %.9g, wanted %.9g", what, found, wanted);
}

static void compare(const float *found, const float *wanted, int64_t n, float relative,
                    const char *what)
{
    float max = 0;

    for (int64_t j = 0; j < n; j++)
        max = fmaxf(max, fabsf(wanted[j]));
    for (int64_t j = 0; j < n; j++)
        if (!(fabsf(found[j] - wanted[j]) <= relative * max + 1e-7f))
            fail_msg("%s[%d] is %.8g, wanted %.8g (max %.8g)", what, (int)j, (double)found[j],
                     (double)wanted[j], (double)max);
}

static void check_gradients(struct golden *g)
{
    const struct params *p = model_params(g->model);
    double loss = json_number_value(json_object_get(g->json, "loss"));

    near(loss_grad(g), loss, 1e-6, "loss");
    for (size_t i = 0; i < p->n; i++) {
        char name[256] = "grad.";
        int64_t n;

        if (!p->item[i].trainable) {
            assert_null(resident_grad(g->weights, i));
            continue;
        }
        params_saved_name(name + 5, sizeof name - 5, p, i, false);
        compare(resident_grad(g->weights, i), golden_floats(g, g->expect, name, &n),
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

    for (o.step = 1; o.step <= 5; o.step++) {
        near(loss_grad(g), json_number_value(json_array_get(losses, (size_t)o.step - 1)), 1e-5,
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
    near(loss_grad(g), json_number_value(json_object_get(g->json, "loss_after")), 1e-5,
         "loss_after");
    for (size_t i = 0; i < p->n; i++) {
        char name[256] = "final.";
        int64_t count;

        if (!p->item[i].trainable)
            continue;
        params_saved_name(name + 6, sizeof name - 6, p, i, false);
        /* A bias of keys moves no probability: its gradient is noise, which AdamW scales up. */
        compare(resident_weight(g->weights, i), golden_floats(g, g->expect, name, &count),
                p->item[i].numel, p->item[i].role == ROLE_QKV_B ? 1e-3f : 1e-4f, name);
    }
}

static void all(enum recompute recompute, int threads)
{
    for (size_t i = 0; i < sizeof goldens / sizeof goldens[0]; i++) {
        struct adapted a;

        open_adapted(&a, goldens[i], recompute, threads);
        check_logits(&a.g);
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
