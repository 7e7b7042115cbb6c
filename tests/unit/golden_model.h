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

/* A cmocka failure that tells the library's sentence. */
#define OK(call, err)                                                                          \
    do {                                                                                       \
        if (call)                                                                              \
            fail_msg("%s: %s", #call, (err).text);                                             \
    } while (0)

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

static inline int64_t *golden_ints(struct golden *g, const char *name, int64_t *rows,
                                   int64_t *cols)
{
    struct ckpt_err err = {0};
    size_t i = ckpt_source_find(g->expect, name);
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

static inline void golden_load(struct golden *g, const char *dir)
{
    struct ckpt_err err = {0};
    struct ckpt_source *src;
    const struct params *p = model_params(g->model);
    size_t found = 0;
    char path[320];

    snprintf(path, sizeof path, "%s", dir);
    OK(ckpt_open_as(&src, "hf", path, NULL, &err), err);
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
    assert_int_equal(found, p->n);
    ckpt_source_close(src);
}

/* A head of its own in the file counts, whatever config.json ties it to. */
static inline void golden_untie(struct golden *g, const char *dir)
{
    struct ckpt_err err = {0};
    const char *head = arch_tied_name(g->arch);
    struct ckpt_source *src;
    char path[320];

    if (!head)
        return;
    snprintf(path, sizeof path, "%s", dir);
    OK(ckpt_open_as(&src, "hf", path, NULL, &err), err);
    if (ckpt_source_find(src, head) != SIZE_MAX)
        OK(arch_untie(g->arch, &err), err);
    ckpt_source_close(src);
}

/* change, when not NULL, alters the description before the model is planned. */
static inline void golden_open_as(struct golden *g, const char *name,
                                  const struct model_opts *opts, int threads,
                                  void (*change)(struct arch *arch))
{
    struct ckpt_err err = {0};
    struct ckpt_dir *dir;
    struct ckpt_file *file;
    struct device_opts device = {.name = GOLDEN_DEVICE, .threads = threads, .weights = CKPT_F32};
    char path[256], file_path[300];

    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, "tests/golden/models/%s", name);
    OK(ckpt_dir_open(&dir, path, 0, &err), err);
    OK(arch_read(&g->arch, dir, "config.json", &err), err);
    golden_untie(g, path);
    if (change)
        change(g->arch);
    OK(device_open(&g->dev, &device, &err), err);
    g->dev->grain = 0;                  /* all threads, however little there is to do */
    OK(model_new(&g->model, g->arch, opts, g->dev, &err), err);
    OK(resident_new(&g->weights, model_params(g->model), opts->train, g->dev, &err), err);
    golden_load(g, path);
    snprintf(file_path, sizeof file_path, "%s/golden.safetensors", path);
    OK(ckpt_open_as(&g->expect, "safetensors", file_path, NULL, &err), err);
    OK(ckpt_file_open_at(&file, dir, "golden.json", &err), err);
    OK(ckpt_json_read(&g->json, file, CKPT_JSON_MAX_BYTES, CKPT_JSON_STRICT, &err), err);
    ckpt_file_close(file);
    ckpt_dir_close(dir);
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

/*
 * The batch of a side ("right", "left", "leftpos", "long"; "" when there is one) without its padding: masked tokens are
 * left out.  Positions follow the mask, but for "left" they are places in the padded row, unless
 * the family always takes them from the mask.  place[i] is where row i lay in the padded
 * [rows, cols].
 */
static inline void golden_rows(struct golden *g, const char *side, struct batch *b,
                               int32_t **place)
{
    const char *kind = strcmp(side, "leftpos") ? side : "left";
    bool by_place = strcmp(side, "left") == 0 && !g->arch->pos_from_mask;
    const char *dot = *kind ? "." : "";
    char name[64];
    int64_t R, C, *ids, *mask, *labels;
    int32_t *out_ids, *pos, *start, *rows, *targets;

    snprintf(name, sizeof name, "%s%sinput_ids", kind, dot);
    ids = golden_ints(g, name, &R, &C);
    snprintf(name, sizeof name, "%s%sattention_mask", kind, dot);
    mask = golden_ints(g, name, &R, &C);
    snprintf(name, sizeof name, "%s%slabels", kind, dot);
    labels = golden_ints(g, name, &R, &C);
    out_ids = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof *out_ids);
    pos = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof *pos);
    rows = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof *rows);
    targets = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof *targets);
    *place = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof **place);
    start = ckpt_arena_alloc(&g->arena, (size_t)R + 1, sizeof *start);
    *b = (struct batch){.n_docs = R, .ids = out_ids, .positions = pos, .doc_start = start,
                        .rows = rows, .targets = targets};
    for (int64_t r = 0; r < R; r++) {
        for (int64_t c = 0; c < C; c++) {
            if (!mask[r * C + c])
                continue;
            out_ids[b->n_tokens] = (int32_t)ids[r * C + c];
            pos[b->n_tokens] = (int32_t)(by_place ? c : b->n_tokens - start[r]);
            (*place)[b->n_tokens] = (int32_t)(r * C + c);
            if (c + 1 < C && mask[r * C + c + 1] && labels[r * C + c + 1] >= 0) {
                rows[b->n_rows] = (int32_t)b->n_tokens;
                targets[b->n_rows++] = (int32_t)labels[r * C + c + 1];
            }
            b->n_tokens++;
        }
        start[r + 1] = (int32_t)b->n_tokens;
    }
}

/*
 * The same for an encoder beside a decoder: the encoder reads what the mask leaves in; the decoder
 * is fed the start id and the labels but the last, an unlabelled token as padding.
 */
static inline void golden_pairs(struct golden *g, const char *side, struct batch *b,
                                int32_t **place)
{
    const char *dot = *side ? "." : "";
    char name[64];
    int64_t R, C, L, *ids, *mask, *labels;
    int32_t *enc, *enc_start, *out_ids, *pos, *start, *rows, *targets;

    snprintf(name, sizeof name, "%s%sinput_ids", side, dot);
    ids = golden_ints(g, name, &R, &C);
    snprintf(name, sizeof name, "%s%sattention_mask", side, dot);
    mask = golden_ints(g, name, &R, &C);
    snprintf(name, sizeof name, "%s%slabels", side, dot);
    labels = golden_ints(g, name, &R, &L);
    enc = ckpt_arena_alloc(&g->arena, (size_t)(R * C), sizeof *enc);
    enc_start = ckpt_arena_alloc(&g->arena, (size_t)R + 1, sizeof *enc_start);
    start = ckpt_arena_alloc(&g->arena, (size_t)R + 1, sizeof *start);
    out_ids = ckpt_arena_alloc(&g->arena, (size_t)(R * L), sizeof *out_ids);
    pos = ckpt_arena_alloc(&g->arena, (size_t)(R * L), sizeof *pos);
    rows = ckpt_arena_alloc(&g->arena, (size_t)(R * L), sizeof *rows);
    targets = ckpt_arena_alloc(&g->arena, (size_t)(R * L), sizeof *targets);
    *place = ckpt_arena_alloc(&g->arena, (size_t)(R * L), sizeof **place);
    *b = (struct batch){.n_docs = R, .n_tokens = R * L, .ids = out_ids, .positions = pos,
                        .doc_start = start, .rows = rows, .targets = targets, .enc_ids = enc,
                        .enc_start = enc_start};
    for (int64_t r = 0; r < R; r++) {
        for (int64_t c = 0; c < C; c++)
            if (mask[r * C + c])
                enc[b->n_enc++] = (int32_t)ids[r * C + c];
        for (int64_t c = 0; c < L; c++) {
            int64_t at = r * L + c, label = c ? labels[at - 1] : g->arch->decoder_start_token_id;

            out_ids[at] = (int32_t)(label < 0 ? g->arch->label_pad_token_id : label);
            pos[at] = (int32_t)c;
            (*place)[at] = (int32_t)at;
            if (labels[at] >= 0) {
                rows[b->n_rows] = (int32_t)at;
                targets[b->n_rows++] = (int32_t)labels[at];
            }
        }
        enc_start[r + 1] = (int32_t)b->n_enc;
        start[r + 1] = (int32_t)((r + 1) * L);
    }
}

/* The batch of a side, as the model's stacks want it. */
static inline void golden_batch(struct golden *g, const char *side, struct batch *b,
                                int32_t **place)
{
    if (g->arch->stack == ARCH_ENCODER_DECODER)
        golden_pairs(g, side, b, place);
    else
        golden_rows(g, side, b, place);
}

#endif
