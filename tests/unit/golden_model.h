/*
 * golden_model - a tiny model of tests/golden/models opened with its weights and its expected
 * values (made by transformers 5.17; see make_models.py's docstring in the fixtures).
 */
#ifndef CKPT_TESTS_UNIT_GOLDEN_MODEL_H
#define CKPT_TESTS_UNIT_GOLDEN_MODEL_H

#include "tests/unit/model_help.h"

#include <math.h>

#include "formats/formats.h"
#include "libckpt/convert.h"
#include "libckpt/mem.h"
#include "trainer/model/model.h"
#include "trainer/model/resident.h"

#ifndef GOLDEN_DEVICE
#define GOLDEN_DEVICE "cpu"
#endif

struct golden {
    struct arch         *arch;
    struct device       *dev;
    struct model        *model;
    struct resident     *weights;
    struct ckpt_source  *expect;        /* golden.safetensors */
    json_t              *json;          /* golden.json */
    struct ckpt_arena    arena;
};

/* All that decode or encode with a decoder. */
static const char *const golden_models[] = {
    "bloom-a", "bloom-b", "opt-a", "opt-350m", "opt-bare", "gpt2-a", "gpt2-b", "llama-a",
    "llama31", "mistral-sw", "qwen2-a", "qwen3-a", "phi3-a", "phi3-long", "mixtral-a", "qwen3moe-a",
    "t5-v10", "t5-v11", "mixtral-aux",
};
enum { GOLDEN_MODELS = sizeof golden_models / sizeof golden_models[0] };

/* A cmocka failure that tells the library's sentence. */
#define OK(call, err)                                                                          \
    do {                                                                                       \
        if (call)                                                                              \
            fail_msg("%s: %s", #call, (err).text);                                             \
    } while (0)

static inline json_t *golden_json(const char *dir, const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    char path[320];
    json_t *json;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    OK(ckpt_file_open(&file, path, 0, &err), err);
    OK(ckpt_json_read(&json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_STRICT, &err), err);
    ckpt_file_close(file);
    return json;
}

static inline struct ckpt_source *golden_source(const char *format, const char *dir,
                                                const char *name)
{
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    char path[320];

    snprintf(path, sizeof path, "%s%s", dir, name);
    OK(ckpt_open_as(&src, format, path, NULL, &err), err);
    return src;
}

static inline struct arch *golden_arch(const char *dir, const char *name)
{
    struct ckpt_err err = {0};
    json_t *config = golden_json(dir, name);
    struct arch *arch;

    OK(arch_read_json(&arch, config, &err), err);
    json_decref(config);
    return arch;
}

/* Tensor of a source as f32 (F32, BF16 files) in the arena; *n its elements. */
static inline float *golden_floats(struct golden *g, struct ckpt_source *src, const char *name,
                                   int64_t *n)
{
    struct ckpt_err err = {0};
    size_t i = ckpt_source_find(src, name);
    const struct ckpt_tensor *t = i == SIZE_MAX ? NULL : ckpt_source_tensor(src, i);
    float *out;
    void *raw;

    if (!t)
        fail_msg("no tensor %s", name);
    out = ckpt_arena_alloc(&g->arena, (size_t)t->numel, sizeof *out);
    raw = ckpt_arena_alloc(&g->arena, (size_t)t->numel, ckpt_dtype_size(t->dtype));
    OK(ckpt_source_read(src, i, 0, t->numel, raw, &err), err);
    ckpt_convert(out, CKPT_F32, raw, t->dtype, (size_t)t->numel);
    *n = t->numel;
    return out;
}

/* "side.name", or without a side the name. */
static inline const char *golden_name(char dst[64], const char *side, const char *name)
{
    snprintf(dst, 64, "%s%s%s", side, *side ? "." : "", name);
    return dst;
}

static inline int64_t *golden_ints(struct golden *g, const char *side, const char *what,
                                   int64_t *rows, int64_t *cols)
{
    struct ckpt_err err = {0};
    char name[64];
    size_t i = ckpt_source_find(g->expect, golden_name(name, side, what));
    const struct ckpt_tensor *t = i == SIZE_MAX ? NULL : ckpt_source_tensor(g->expect, i);
    int64_t *out;

    if (!t || t->dtype != CKPT_I64)
        fail_msg("no I64 tensor %s", name);
    out = ckpt_arena_alloc(&g->arena, (size_t)t->numel, sizeof *out);
    OK(ckpt_source_read(g->expect, i, 0, t->numel, out, &err), err);
    *rows = t->shape.dim[0];
    *cols = t->shape.dim[1];
    return out;
}

static inline int32_t *golden_ids(struct golden *g, int64_t n)
{
    return ckpt_arena_alloc(&g->arena, (size_t)n, sizeof(int32_t));
}

/* Every parameter but an adapter's from the model's files. */
static inline void golden_load(struct golden *g, const char *dir)
{
    struct ckpt_source *src = golden_source("hf", dir, "");
    const struct params *p = model_params(g->model);
    size_t found = 0, wanted = 0;

    for (size_t t = 0; t < ckpt_source_count(src); t++) {
        int64_t n;
        const char *name = ckpt_source_tensor(src, t)->name;
        const float *x = golden_floats(g, src, name, &n);
        size_t i = params_find(p, name);

        if (i == SIZE_MAX && params_spare(p, name))
            continue;
        found++;
        assert_int_not_equal(i, SIZE_MAX);
        assert_int_equal(n, p->item[i].numel);
        g->dev->ops->to_device(g->dev, resident_weight(g->weights, i), x, (size_t)n * sizeof *x);
    }
    for (size_t i = 0; i < p->n; i++)
        wanted += p->item[i].kind == PARAM_BASE;
    assert_int_equal(found, wanted);
    ckpt_source_close(src);
}

/* A head of its own in the file counts, whatever config.json ties it to. */
static inline void golden_untie(struct golden *g, const char *dir)
{
    struct ckpt_err err = {0};
    const char *head = arch_tied_name(g->arch);
    struct ckpt_source *src;

    if (!head)
        return;
    src = golden_source("hf", dir, "");
    if (ckpt_source_find(src, head) != SIZE_MAX)
        OK(arch_untie(g->arch, &err), err);
    ckpt_source_close(src);
}

/*
 * The model in dir, whose expected values lie in dir too, or with an adapter above it.  change,
 * when not NULL, alters the description before the model is planned.
 */
static inline void golden_open_dir(struct golden *g, const char *dir, const char *expected,
                                   const struct model_opts *opts, int threads,
                                   void (*change)(struct arch *arch))
{
    struct device_opts device = {.name = GOLDEN_DEVICE, .threads = threads, .weights = CKPT_F32};
    struct ckpt_err err = {0};

    memset(g, 0, sizeof *g);
    g->arch = golden_arch(dir, "config.json");
    golden_untie(g, dir);
    if (change)
        change(g->arch);
    OK(device_open(&g->dev, &device, &err), err);
    g->dev->grain = 0;                  /* all threads, however little there is to do */
    OK(model_new(&g->model, g->arch, opts, g->dev, &err), err);
    OK(resident_new(&g->weights, model_params(g->model), opts->train, g->dev, &err), err);
    golden_load(g, dir);
    g->expect = golden_source("safetensors", expected, "/golden.safetensors");
    g->json = golden_json(expected, "golden.json");
}

static inline void golden_open_as(struct golden *g, const char *name,
                                  const struct model_opts *opts, int threads,
                                  void (*change)(struct arch *arch))
{
    char dir[256];

    snprintf(dir, sizeof dir, "tests/golden/models/%s", name);
    golden_open_dir(g, dir, dir, opts, threads, change);
}

static inline void golden_open(struct golden *g, const char *name,
                               const struct model_opts *opts, int threads)
{
    golden_open_as(g, name, opts, threads, NULL);
}

static inline void golden_close(struct golden *g)
{
    json_decref(g->json);
    ckpt_source_close(g->expect);
    resident_free(g->weights);
    model_free(g->model);
    device_close(g->dev);
    arch_free(g->arch);
    ckpt_arena_release(&g->arena);
}

/* -- batches ---------------------------------------------------------------------------------- */

/* A batch's arrays while they are filled, for so many documents and tokens at most. */
struct golden_batch {
    int32_t *ids, *positions, *doc_start, *rows, *targets, *place;
};

static inline struct golden_batch golden_batch_new(struct golden *g, struct batch *b, int64_t docs,
                                                   int64_t n)
{
    struct golden_batch to = {golden_ids(g, n), golden_ids(g, n), golden_ids(g, docs + 1),
                              golden_ids(g, n), golden_ids(g, n), golden_ids(g, n)};

    *b = (struct batch){.n_docs = docs, .ids = to.ids, .positions = to.positions,
                        .doc_start = to.doc_start, .rows = to.rows, .targets = to.targets};
    return to;
}

/* The next token; target: what it must predict, or negative. */
static inline void golden_batch_add(struct golden_batch *to, struct batch *b, int64_t id,
                                    int64_t position, int64_t place, int64_t target)
{
    to->ids[b->n_tokens] = (int32_t)id;
    to->positions[b->n_tokens] = (int32_t)position;
    to->place[b->n_tokens] = (int32_t)place;
    if (target >= 0) {
        to->rows[b->n_rows] = (int32_t)b->n_tokens;
        to->targets[b->n_rows++] = (int32_t)target;
    }
    b->n_tokens++;
}

/* Masked tokens are left out.  Positions follow the mask, but for "left" they are places in the
 * padded row, unless the family always takes them from the mask. */
static inline struct golden_batch golden_rows(struct golden *g, const char *side, struct batch *b)
{
    const char *kind = strcmp(side, "leftpos") ? side : "left";
    bool by_place = strcmp(side, "left") == 0 && !g->arch->pos_from_mask;
    int64_t R, C, *ids = golden_ints(g, kind, "input_ids", &R, &C);
    int64_t *mask = golden_ints(g, kind, "attention_mask", &R, &C);
    int64_t *labels = golden_ints(g, kind, "labels", &R, &C);
    struct golden_batch to = golden_batch_new(g, b, R, R * C);

    for (int64_t i = 0; i < R * C; i++) {
        int64_t c = i % C, start = to.doc_start[i / C];
        bool last = c + 1 == C || !mask[i + 1];

        if (mask[i])
            golden_batch_add(&to, b, ids[i], by_place ? c : b->n_tokens - start, i,
                             last ? -1 : labels[i + 1]);
        to.doc_start[i / C + 1] = (int32_t)b->n_tokens;
    }
    return to;
}

/*
 * The same for an encoder beside a decoder: the encoder reads what the mask leaves in; the decoder
 * is fed the start id and the labels but the last, an unlabelled token as padding.
 */
static inline struct golden_batch golden_pairs(struct golden *g, const char *side, struct batch *b)
{
    int64_t R, C, L, *ids = golden_ints(g, side, "input_ids", &R, &C);
    int64_t *mask = golden_ints(g, side, "attention_mask", &R, &C);
    int64_t *labels = golden_ints(g, side, "labels", &R, &L);
    int32_t *enc = golden_ids(g, R * C), *enc_start = golden_ids(g, R + 1);
    struct golden_batch to = golden_batch_new(g, b, R, R * L);

    b->enc_ids = enc;
    b->enc_start = enc_start;
    for (int64_t r = 0; r < R; r++) {
        for (int64_t c = 0; c < C; c++)
            if (mask[r * C + c])
                enc[b->n_enc++] = (int32_t)ids[r * C + c];
        for (int64_t c = 0; c < L; c++) {
            int64_t at = r * L + c, label = c ? labels[at - 1] : g->arch->decoder_start_token_id;

            golden_batch_add(&to, b, label < 0 ? g->arch->label_pad_token_id : label, c, at,
                             labels[at]);
        }
        enc_start[r + 1] = (int32_t)b->n_enc;
        to.doc_start[r + 1] = (int32_t)b->n_tokens;
    }
    return to;
}

/*
 * The batch of a side ("right", "left", "leftpos", "long"; "" when there is one) without its
 * padding, as the model's stacks want it.  place (NULL: not wanted): where each row lay in the
 * padded [rows, cols].
 */
static inline void golden_batch(struct golden *g, const char *side, struct batch *b,
                                int32_t **place)
{
    struct golden_batch made = g->arch->stack == ARCH_ENCODER_DECODER ? golden_pairs(g, side, b)
                                                                      : golden_rows(g, side, b);

    if (place)
        *place = made.place;
}

/* -- agreement -------------------------------------------------------------------------------- */

static inline double golden_number(const json_t *j, const char *key)
{
    const json_t *v = json_object_get(j, key);

    if (!json_is_number(v))
        fail_msg("no number %s", key);
    return json_number_value(v);
}

static inline void golden_near(double found, double wanted, double relative, const char *what)
{
    if (!(fabs(found - wanted) <= relative * fabs(wanted)))
        fail_msg("%s is %.9g, wanted %.9g", what, found, wanted);
}

/* Within that share of the largest. */
static inline void golden_close_to(const float *found, const float *wanted, int64_t n,
                                   float relative, const char *what)
{
    float max = 0;

    for (int64_t j = 0; j < n; j++)
        max = fmaxf(max, fabsf(wanted[j]));
    for (int64_t j = 0; j < n; j++)
        if (!(fabsf(found[j] - wanted[j]) <= relative * max + 1e-7f))
            fail_msg("%s[%d] is %.8g, wanted %.8g (max %.8g)", what, (int)j, (double)found[j],
                     (double)wanted[j], (double)max);
}

/* found [n][width] against the padded rows where they lay: absolute 1e-5, as the fixtures promise
 * (values are 1 to 10). */
static inline void golden_same_rows(const float *found, const float *wanted, const int32_t *place,
                                    int64_t n, int64_t width, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            if (!(fabsf(found[i * width + j] - wanted[place[i] * width + j]) <= 1e-5f))
                fail_msg("%s row %d, %d: %.8g, wanted %.8g", what, (int)i, (int)j,
                         (double)found[i * width + j], (double)wanted[place[i] * width + j]);
}

/* Logits at every visible place. */
static inline void golden_check_logits(struct golden *g, const char *side)
{
    struct ckpt_err err = {0};
    struct batch b;
    int32_t *place, rows[128];
    int64_t V = g->arch->vocab_size, n;
    char name[64];
    float *found;

    golden_batch(g, side, &b, &place);
    for (int32_t i = 0; i < (int32_t)b.n_tokens; i++)
        rows[i] = i;
    found = ckpt_arena_alloc(&g->arena, (size_t)(b.n_tokens * V), sizeof *found);
    OK(model_logits(g->model, resident_door(g->weights), &b, rows, b.n_tokens, found, &err), err);
    golden_name(name, side, "logits");
    golden_same_rows(found, golden_floats(g, g->expect, name, &n), place, b.n_tokens, V, name);
}

/* The summed loss; gradients of its product with scale alone into the resident buffers. */
static inline double golden_loss_grad(struct golden *g, const struct batch *b, float scale)
{
    struct ckpt_err err = {0};
    double sum;

    g->dev->ops->zero(g->dev, resident_grads(g->weights),
                      (size_t)model_params(g->model)->grad_numel * sizeof(float));
    OK(model_loss_grad(g->model, resident_door(g->weights), b, scale, &sum, &err), err);
    return sum;
}

/* Of the mean loss. */
static inline double golden_mean_grad(struct golden *g, const struct batch *b)
{
    return golden_loss_grad(g, b, 1.0f / (float)b->n_rows) / (double)b->n_rows;
}

#endif
