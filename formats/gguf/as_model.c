/* gguf/as_model - see gguf/as_model.h. */
#include "formats/gguf/as_model.h"

#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/gguf/meta.h"
#include "formats/gguf/names.h"
#include "formats/gguf/vocab.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/view.h"
#include "libckpt/views/layout.h"

struct work {
    struct ckpt_source       *src;
    const struct family      *family;
    const json_t             *keys;
    json_t                   *config;   /* of the file, or newly made */
    bool                      made;
    const char               *prefix;
    struct ckpt_layout       *row;
    struct ckpt_cast_rule    *cast;
    size_t                    n_row, cap, n_cast;
    struct ckpt_arena         arena;
    int64_t                   heads, kv_heads;
};

static const json_t *own(const struct work *w, const char *key)
{
    const char *a = json_string_value(json_object_get(w->keys, "general.architecture"));
    char name[256];

    snprintf(name, sizeof name, "%s.%s", a ? a : "", key);
    return json_object_get(w->keys, name);
}

/* -- rows ------------------------------------------------------------------------------------ */

static int add_row(struct work *w, const char *name, size_t i, int64_t start,
                   const struct ckpt_shape *shape, struct ckpt_err *err)
{
    struct ckpt_layout_part *part = ckpt_arena_alloc(&w->arena, 1, sizeof *part);
    char *copy = ckpt_arena_strndup(&w->arena, name, strlen(name));

    if (!part || !copy || ckpt_reserve(&w->row, w->n_row, &w->cap, sizeof *w->row, err))
        return ckpt_nomem(err, sizeof *part);
    *part = (struct ckpt_layout_part){i, start};
    w->row[w->n_row++] = (struct ckpt_layout){
        .name = copy, .shape = *shape, .part = part, .n_part = 1,
    };
    return 0;
}

/* Split a stack of experts into a tensor for each. */
static int add_experts(struct work *w, size_t i, struct gguf_name *how,
                       struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(w->src, i);
    struct ckpt_shape shape = {.rank = t->shape.rank - 1};
    int64_t n = t->shape.rank ? t->shape.dim[0] : 0;
    char name[CKPT_MAX_NAME];
    int rc = 0;

    if (t->shape.rank < 2 || n < 1 || n > 65536)
        return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: is no stack of experts", t->name);
    memcpy(shape.dim, t->shape.dim + 1, (size_t)shape.rank * sizeof *shape.dim);
    for (int64_t e = 0; rc == 0 && e < n; e++) {
        how->at.expert = e;
        family_spell(name, sizeof name, how->pattern, w->prefix, &how->at);
        rc = add_row(w, name, i, e * (t->numel / n), &shape, err);
    }
    return rc;
}

/* The original dtype of a promoted tensor, or NONE. */
static enum ckpt_dtype promoted(const struct work *w, const char *name)
{
    const char *line = json_string_value(json_object_get(w->keys, "ckpt.promoted"));
    size_t n = strlen(name);
    char dtype[32];

    for (; line && *line; line += line[strcspn(line, "\n")] ? strcspn(line, "\n") + 1
                                                            : strlen(line))
        if (strncmp(line, name, n) == 0 && line[n] == ' ') {
            snprintf(dtype, sizeof dtype, "%.*s", (int)strcspn(line + n + 1, "\n"), line + n + 1);
            return ckpt_dtype_parse(dtype);
        }
    return CKPT_DTYPE_NONE;
}

static int add_tensor(struct work *w, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(w->src, i);
    struct gguf_name how = {.change = GGUF_AS_IS};
    bool named = gguf_name_of_gguf(&how, w->family, t->name);
    enum ckpt_dtype dtype = promoted(w, t->name);
    char name[CKPT_MAX_NAME];
    int rc;

    if (!named && strncmp(t->name, "rope_f", 6) == 0) {
        ckpt_log(w->made ? CKPT_LOG_WARNING : CKPT_LOG_DEBUG,
                 "%s: left out%s", t->name,
                 w->made ? "; config.json does not say how long contexts are scaled" : "");
        return 0;
    }
    if (named && how.change == GGUF_EXPERT)
        return add_experts(w, i, &how, err);
    if (named)
        family_spell(name, sizeof name, how.pattern, w->prefix, &how.at);
    else
        ckpt_log(CKPT_LOG_WARNING, "%s: %s has no name for it, it keeps this one", t->name,
                 w->family->architecture);
    rc = add_row(w, named ? name : t->name, i, 0, &t->shape, err);
    if (rc == 0 && named && how.change != GGUF_AS_IS)
        rc = gguf_layout(&w->row[w->n_row - 1], how.change, t,
                         how.change == GGUF_ROPE_K ? w->kv_heads : w->heads, false, err);
    if (rc == 0 && t->dtype == CKPT_F32 && !t->stored &&
        ckpt_dtype_class(dtype) == CKPT_CLASS_FLOAT)
        w->cast[w->n_cast++] = (struct ckpt_cast_rule){w->row[w->n_row - 1].name, dtype};
    return rc;
}

/* -- config.json ----------------------------------------------------------------------------- */

/* Find the family, and the stored config.json or make one; family NULL: unknown. */
static int begin(struct work *w, struct ckpt_err *err)
{
    const char *architecture = json_string_value(json_object_get(w->keys, "general.architecture"));
    const json_t *experts = own(w, "expert_count"), *v;
    size_t embedding = ckpt_source_find(w->src, "token_embd.weight");
    int64_t tokens = embedding == SIZE_MAX
                         ? 0 : ckpt_source_tensor(w->src, embedding)->shape.dim[0];
    const char *type;
    int rc = side_file_read(&w->config, w->src, "config.json", CKPT_JSON_MAX_BYTES, err);

    if (rc)
        return rc;
    type = json_string_value(json_object_get(w->config, "model_type"));
    w->family = type           ? gguf_family(type)
                : architecture ? gguf_family_of(architecture, json_integer_value(experts) > 0)
                               : NULL;
    if (!w->family)
        return 0;
    w->made = !w->config;
    if (w->made &&
        (rc = gguf_meta_config(&w->config, w->family, w->keys,
                               ckpt_source_find(w->src, "output.weight") == SIZE_MAX, tokens,
                               err)) != 0)
        return rc;
    v = json_object_get(w->keys, "ckpt.prefix");
    w->prefix = json_is_string(v) ? json_string_value(v) : w->family->prefix;
    if (strlen(w->prefix) > 64)
        return ckpt_fail(err, CKPT_ELIMIT, "ckpt.prefix is longer than 64 bytes");
    w->heads = json_integer_value(own(w, "attention.head_count"));
    v = own(w, "attention.head_count_kv");
    w->kv_heads = v ? json_integer_value(v) : w->heads;
    if (w->heads < 0 || w->heads > 65536 || w->kv_heads < 0 || w->kv_heads > 65536)
        return ckpt_fail(err, CKPT_EFORMAT, "%s.attention.head_count is out of range",
                         w->family->gguf);
    return 0;                           /* 0: unknown, which matters for few tensors */
}

/* Add the vocabulary of the file's keys, if it stores no tokenizer. */
static int add_vocab(struct ckpt_source **laid, struct ckpt_file *file, struct ckpt_err *err)
{
    json_t *tokenizer = NULL, *settings = NULL;
    int rc = 0;

    if (file && !ckpt_source_extra(*laid, "tokenizer.json"))
        rc = gguf_vocab(&tokenizer, &settings, file, err);
    if (rc == 0 && tokenizer)
        rc = side_file_replace(laid, "tokenizer.json", tokenizer, NULL, err);
    if (rc == 0 && tokenizer && !ckpt_source_extra(*laid, "tokenizer_config.json"))
        rc = side_file_replace(laid, "tokenizer_config.json", settings, NULL, err);
    json_decref(tokenizer);
    json_decref(settings);
    return rc;
}

static int build(struct work *w, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(w->src);
    int rc;

    w->cast = ckpt_alloc(n, sizeof *w->cast);
    rc = w->cast ? 0 : ckpt_nomem(err, n * sizeof *w->cast);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_tensor(w, i, err);
    return rc;
}

int gguf_as_model(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err)
{
    struct work w = {.src = src, .keys = json_object_get(ckpt_source_info(src), "keys")};
    struct ckpt_file *file = gguf_source_file(src);
    struct ckpt_source *laid = NULL;
    int rc = begin(&w, err);

    *out = NULL;
    if (rc == 0 && !w.family) {
        const char *a = json_string_value(json_object_get(w.keys, "general.architecture"));

        ckpt_log(CKPT_LOG_NOTE, "architecture %s: tensors keep their names", a ? a : "unknown");
        *out = src;
        json_decref(w.config);
        return 0;
    }
    if (rc == 0)
        rc = build(&w, err);
    if (rc)
        ckpt_source_close(src);
    else
        rc = ckpt_view_layout(&laid, src, w.row, w.n_row, NULL, err);
    if (rc == 0 && w.n_cast) {
        struct ckpt_source *below = laid;

        laid = NULL;
        rc = ckpt_view_cast(&laid, below, w.cast, w.n_cast, err);
    }
    if (rc == 0 && w.made)
        rc = side_file_replace(&laid, "config.json", w.config, NULL, err);
    if (rc == 0 && w.made)
        rc = add_vocab(&laid, file, err);
    if (rc) {
        ckpt_source_close(laid);
        laid = NULL;
    }
    *out = rc == 0 ? laid : NULL;
    json_decref(w.config);
    ckpt_free(w.row);
    ckpt_free(w.cast);
    ckpt_arena_release(&w.arena);
    return rc;
}
