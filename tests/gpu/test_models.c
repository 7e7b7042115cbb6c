/*
 * Every golden model on a GPU: logits, losses and gradients against transformers' recorded
 * ones, in f32, and in bf16 and f16 as far as their rounding allows; two runs give the same
 * bits.
 */
#include "tests/unit/golden_model.h"
#include "tests/unit/half_errors.h"

#include <stdarg.h>

#include "trainer/comm/comm.h"
#include "trainer/shard/zero.h"

static const char *const models[] = {
    "bloom-a", "bloom-b", "opt-a", "opt-350m", "opt-bare", "gpt2-a", "gpt2-b", "llama-a",
    "llama31", "mistral-sw", "qwen2-a", "qwen3-a", "phi3-a", "phi3-long", "mixtral-a", "qwen3moe-a",
    "t5-v10", "t5-v11", "mixtral-aux",
};

static const struct bounds f32 = {1e-5, 1e-6, 3e-5, 3e-5};

static int n_wrong;

/* Print an error and go on: a run reports all of them. */
__attribute__((format(printf, 1, 2))) static void wrong(const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    print_message("wrong: %s\n", text);
    n_wrong++;
}

struct on_gpu {
    struct golden    g;             /* its weights are NULL; dev is the GPU */
    struct comm     *comm;
    struct zero     *zero;
    struct ckpt_source *weights;
};

/* Values of parameter i from the model's own file. */
static int fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
                struct ckpt_err *err)
{
    struct on_gpu *o = ctx;
    const struct params *p = model_params(o->g.model);

    for (size_t t = 0; t < ckpt_source_count(o->weights); t++) {
        const struct ckpt_tensor *x = ckpt_source_tensor(o->weights, t);
        void *raw;
        int rc;

        if (params_find(p, x->name) != i)
            continue;
        raw = malloc((size_t)count * ckpt_dtype_size(x->dtype));
        rc = ckpt_source_read(o->weights, t, start, count, raw, err);
        ckpt_convert(dst, CKPT_F32, raw, x->dtype, (size_t)count);
        free(raw);
        return rc;
    }
    return ckpt_fail(err, CKPT_ENOTFOUND, "%s: not in the file", p->item[i].name);
}

static void start(struct on_gpu *o, const char *name, enum ckpt_dtype type, enum recompute recompute)
{
    const struct model_opts opts = {.max_tokens = 87, .max_docs = 3, .max_rows = 84,
                                    .max_enc = 300, .train = true, .recompute = recompute};
    struct device_opts device = {.name = "cuda", .weights = type};
    struct ckpt_err err = {0};
    struct ckpt_dir *dir;
    char path[256], file[300];

    memset(o, 0, sizeof *o);
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    OK(ckpt_dir_open(&dir, path, 0, &err), err);
    OK(arch_read(&o->g.arch, dir, "config.json", &err), err);
    ckpt_dir_close(dir);
    golden_untie(&o->g, path);
    OK(device_open(&o->g.dev, &device, &err), err);
    OK(comm_open(&o->comm, 0, &err), err);
    OK(model_new(&o->g.model, o->g.arch, &opts, o->g.dev, &err), err);
    OK(zero_new(&o->zero, model_params(o->g.model), &(struct zero_opts){.train = true}, o->g.dev,
                o->comm, &err), err);
    OK(ckpt_open_as(&o->weights, "hf", path, NULL, &err), err);
    OK(zero_fill(o->zero, ZERO_MASTER, fill, o, &err), err);
    snprintf(file, sizeof file, "%s/golden.json", path);
    o->g.json = json_load_file(file, 0, NULL);
    assert_non_null(o->g.json);
    snprintf(file, sizeof file, "%s/golden.safetensors", path);
    OK(ckpt_open_as(&o->g.expect, "safetensors", file, NULL, &err), err);
}

static void stop(struct on_gpu *o)
{
    json_decref(o->g.json);
    ckpt_source_close(o->g.expect);
    ckpt_source_close(o->weights);
    model_free(o->g.model);
    zero_free(o->zero);
    comm_close(o->comm);
    device_close(o->g.dev);
    arch_free(o->g.arch);
    ckpt_arena_release(&o->g.arena);
}

static void check_logits(struct on_gpu *o, const char *side, const struct bounds *may)
{
    struct ckpt_err err = {0};
    struct batch b;
    int32_t *place, rows[128];
    int64_t V = o->g.arch->vocab_size, n;
    char name[64];
    float *found, *wanted;
    double most = 0;

    golden_batch(&o->g, side, &b, &place);
    for (int32_t i = 0; i < (int32_t)b.n_tokens; i++)
        rows[i] = i;
    found = ckpt_arena_alloc(&o->g.arena, (size_t)(b.n_tokens * V), sizeof *found);
    OK(model_logits(o->g.model, zero_weights(o->zero), &b, rows, b.n_tokens, found, &err), err);
    snprintf(name, sizeof name, "%s.logits", side);
    wanted = golden_floats(&o->g, o->g.expect, name, &n);
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)wanted[i]));
    for (int64_t i = 0; i < b.n_tokens * V; i++) {
        double want = (double)wanted[place[i / V] * V + i % V];

        if (!(fabs((double)found[i] - want) <= may->logits * most)) {
            wrong("%s row %lld id %lld: %.8g, wanted %.8g of %.4g (%s)", name,
                  (long long)(i / V), (long long)(i % V), (double)found[i], want, most,
                  ckpt_dtype_name(o->g.dev->act));
            return;
        }
    }
}

/* Loss and gradients; all gradients' bytes to again [grad_numel], or compared with it. */
static void check_gradients(struct on_gpu *o, const struct bounds *may, float *again, bool compare)
{
    const struct params *p = model_params(o->g.model);
    struct ckpt_err err = {0};
    struct batch b;
    int32_t *place;
    double sum;
    char name[200];
    int64_t n;
    double all, want, all_off = 0;

    golden_batch(&o->g, "right", &b, &place);
    zero_begin(o->zero);
    OK(model_loss_grad(o->g.model, zero_weights(o->zero), &b, 1.0f / (float)b.n_rows, &sum, &err),
       err);
    all = json_number_value(json_object_get(o->g.json, "grad_norm"));
    want = json_number_value(json_object_get(o->g.json, "right.loss"));
    sum /= (double)b.n_rows;
    if (!(fabs(sum - want) <= may->loss * want))
        wrong("loss %.8g, wanted %.8g (%s)", sum, want, ckpt_dtype_name(o->g.dev->act));
    for (size_t i = 0; i < p->n; i++) {
        const float *layer = zero_gather_grad(o->zero, p->item[i].layer, &err);
        const float *found = layer + p->item[i].grad_offset, *wanted;
        double off = 0, norm = 0, most = 0, worst = 0;

        if (compare)
            assert_memory_equal(again, found, (size_t)p->item[i].numel * sizeof *found);
        else
            memcpy(again, found, (size_t)p->item[i].numel * sizeof *found);
        again += p->item[i].numel;
        snprintf(name, sizeof name, "grad.%s", p->item[i].name);
        wanted = golden_floats(&o->g, o->g.expect, name, &n);
        for (int64_t j = 0; j < n; j++) {
            double d = (double)found[j] - (double)wanted[j];

            off += d * d;
            norm += (double)wanted[j] * (double)wanted[j];
            most = fmax(most, fabs((double)wanted[j]));
            worst = fmax(worst, fabs(d));
        }
        all_off += off;
        if (!(sqrt(off) <= may->gradient * (sqrt(norm) + 3e-3 * all)) ||
            (o->g.dev->act == CKPT_F32 && worst > 5e-5 * most + 1e-7))
            wrong("%s: gradient is off by %.3g of %.3g, %.3g of all (worst %.3g of %.3g, %s)",
                  p->item[i].name, sqrt(off), sqrt(norm), all, worst, most,
                  ckpt_dtype_name(o->g.dev->act));
    }
    if (!(sqrt(all_off) <= may->all * all))
        wrong("all gradients are off by %.3g of %.3g (%s)", sqrt(all_off), all,
              ckpt_dtype_name(o->g.dev->act));
}

static void all_models(enum ckpt_dtype type, enum recompute recompute)
{
    n_wrong = 0;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct on_gpu o;
        struct bounds bounds = type == CKPT_F32 ? f32 : half_bounds(models[i], type), *may = &bounds;
        int before = n_wrong;
        float *again;

        start(&o, models[i], type, recompute);
        again = malloc((size_t)model_params(o.g.model)->grad_numel * sizeof *again);
        check_logits(&o, "right", may);
        check_logits(&o, "left", may);
        check_gradients(&o, may, again, false);
        check_gradients(&o, may, again, true);
        free(again);
        stop(&o);
        if (n_wrong > before)
            print_message("in %s, %s\n", models[i], ckpt_dtype_name(type));
    }
    assert_int_equal(n_wrong, 0);
}

TEST(f32)
{
    all_models(CKPT_F32, RECOMPUTE_NONE);
}

TEST(f32_when_blocks_are_recomputed)
{
    all_models(CKPT_F32, RECOMPUTE_FULL);
    all_models(CKPT_F32, RECOMPUTE_NORMS);
}

TEST(bf16)
{
    all_models(CKPT_BF16, RECOMPUTE_NONE);
}

TEST(f16)
{
    all_models(CKPT_F16, RECOMPUTE_NONE);
}
