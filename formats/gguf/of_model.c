/* gguf/of_model - see gguf/of_model.h. */
#include "formats/gguf/of_model.h"

#include <stdio.h>
#include <string.h>

#include "formats/gguf/meta.h"
#include "formats/gguf/names.h"
#include "formats/gguf/tokens.h"
#include "formats/gguf/types.h"
#include "formats/hf/side_files.h"
#include "libckpt/base/buf.h"
#include "libckpt/convert.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/base/map.h"
#include "libckpt/views/layout.h"

#define MAX_SIDE     CKPT_JSON_MAX_TOKENIZER_BYTES
#define MAX_EXPERTS  65536
#define MAX_PROMOTED 60000u         /* bytes of ckpt.promoted: a reader keeps strings of 64 KiB */

/* Side files that are stored in full. */
static const struct { const char *file, *key; } kept[] = {
    {"config.json", "ckpt.file.config.json"},
    {"generation_config.json", "ckpt.file.generation_config.json"},
    {"tokenizer_config.json", "ckpt.file.tokenizer_config.json"},
    {"special_tokens_map.json", "ckpt.file.special_tokens_map.json"},
    {"added_tokens.json", "ckpt.file.added_tokens.json"},
    {"chat_template.jinja", "ckpt.file.chat_template.jinja"},
    {"tokenizer.json", "tokenizer.huggingface.json"},
};

struct work {
    struct ckpt_source       *src;
    const struct family      *family;   /* NULL: names are unchanged */
    json_t                   *config, *factors;
    struct gguf_keys          keys;
    struct ckpt_layout       *row;
    size_t                    n_row;
    struct ckpt_cast_rule    *cast;
    size_t                    n_cast;
    struct gguf_count         count;
    const struct ckpt_cast_rule *rule;  /* rules of the caller, by the names in src */
    const bool               *packs;
    size_t                    n_rule;
    bool                      packed;   /* some row is */
    struct ckpt_map          *by_name;  /* rows */
    struct ckpt_arena         arena;
    struct ckpt_buf           promoted;
    bool                      bare;     /* names lack the prefix */
    int64_t                   heads, kv_heads, experts;
};

/* -- rows ------------------------------------------------------------------------------------ */

/* Add an expert to the tensor that stacks the experts. */
static int add_expert(struct work *w, size_t i, const char *name, int64_t expert,
                      struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(w->src, i), *first;
    size_t k = ckpt_map_get(w->by_name, name, strlen(name));
    struct ckpt_layout_part *part;
    struct ckpt_layout *r;
    int rc;

    if (expert >= w->experts)
        return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: config.json has %lld experts", t->name,
                         (long long)w->experts);
    if (k == CKPT_MAP_NONE) {
        part = ckpt_arena_alloc(&w->arena, (size_t)w->experts, sizeof *part);
        if (!part || t->shape.rank >= CKPT_MAX_RANK)
            return ckpt_nomem(err, (size_t)w->experts * sizeof *part);
        for (int64_t e = 0; e < w->experts; e++)
            part[e].src = SIZE_MAX;
        if ((rc = ckpt_map_add(w->by_name, name, strlen(name), w->n_row, err)) != 0)
            return rc;
        r = &w->row[w->n_row++];
        *r = (struct ckpt_layout){.name = name, .part = part, .n_part = (size_t)w->experts};
        r->shape.rank = t->shape.rank + 1;
        r->shape.dim[0] = w->experts;
        memcpy(r->shape.dim + 1, t->shape.dim, (size_t)t->shape.rank * sizeof *t->shape.dim);
    } else {
        r = &w->row[k];
        part = (struct ckpt_layout_part *)r->part;
        for (int64_t e = 0; e < w->experts; e++)
            if (part[e].src != SIZE_MAX) {
                first = ckpt_source_tensor(w->src, part[e].src);
                if (t->dtype != first->dtype || !ckpt_shape_equal(&t->shape, &first->shape))
                    return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: other dtype or shape than %s, "
                                     "with which it is stacked", t->name, first->name);
                break;
            }
    }
    part[expert].src = i;
    return 0;
}

static int add_tensor(struct work *w, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(w->src, i);
    struct ckpt_layout *r = &w->row[w->n_row];
    struct gguf_name how = {.change = GGUF_AS_IS};
    struct ckpt_layout_part *part;
    char name[CKPT_MAX_NAME + 1];
    int rc = 0;

    snprintf(name, sizeof name, "%s", t->name);
    if (w->family) {
        if (!gguf_name_of_hf(&how, w->family, t->name))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: llama.cpp's %s has no name for it",
                             t->name, w->family->gguf);
        if (how.change == GGUF_LEFT_OUT) {
            ckpt_log(CKPT_LOG_NOTE, "%s: left out, llama.cpp makes it itself", t->name);
            return 0;
        }
        if (!how.outside)
            w->bare = strncmp(t->name, w->family->prefix, strlen(w->family->prefix)) != 0;
        family_spell(name, sizeof name, how.pattern, "", &how.at);
    }
    r->name = ckpt_arena_strndup(&w->arena, name, strlen(name));
    part = ckpt_arena_alloc(&w->arena, 1, sizeof *part);
    if (!r->name || !part)
        return ckpt_nomem(err, sizeof *part);
    if (how.change == GGUF_EXPERT)
        return add_expert(w, i, r->name, how.at.expert, err);
    part->src = i;
    *r = (struct ckpt_layout){.name = r->name, .shape = t->shape, .part = part, .n_part = 1};
    if (how.change != GGUF_AS_IS)
        rc = gguf_layout(r, how.change, t, how.change == GGUF_ROPE_K ? w->kv_heads : w->heads,
                         true, err);
    if (rc == 0 && ckpt_map_add(w->by_name, r->name, strlen(r->name), w->n_row, err))
        rc = ckpt_err_in(err, "tensor");
    w->n_row += rc == 0;
    return rc;
}

/* Add computed tensors: each a JSON array of numbers. */
static int add_factors(struct work *w, struct ckpt_err *err)
{
    const char *name;
    json_t *list, *v;
    size_t i;

    json_object_foreach (w->factors, name, list) {
        size_t n = json_array_size(list);
        float *value = ckpt_arena_alloc(&w->arena, n, sizeof *value);

        if (!value)
            return ckpt_nomem(err, n * sizeof *value);
        json_array_foreach (list, i, v)
            value[i] = (float)json_number_value(v);
        w->row[w->n_row++] = (struct ckpt_layout){
            .name = name, .shape = ckpt_shape_1d((int64_t)n), .value = value,
        };
    }
    return 0;
}

static int check_experts(const struct work *w, struct ckpt_err *err)
{
    for (size_t i = 0; i < w->n_row; i++)
        for (size_t e = 0; e < w->row[i].n_part; e++)
            if (w->row[i].part[e].src == SIZE_MAX)
                return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: expert %zu of %zu is not there",
                                 w->row[i].name, e, w->row[i].n_part);
    return 0;
}

/* -- dtypes ---------------------------------------------------------------------------------- */

/* Choose each row's type: F32 where llama.cpp needs it, packed where possible. */
static int settle(struct work *w, size_t i, struct ckpt_err *err)
{
    struct ckpt_layout *r = &w->row[i];
    const struct ckpt_tensor *t = r->n_part ? ckpt_source_tensor(w->src, r->part[0].src) : NULL;
    const struct ckpt_cast_rule *rule = t ? ckpt_view_cast_rule(t, w->rule, w->n_rule) : NULL;
    bool small = w->family && (r->shape.rank < 2 || gguf_wants_f32(r->name));
    bool packs = rule && w->packs && w->packs[rule - w->rule];
    int64_t width = r->shape.rank ? r->shape.dim[r->shape.rank - 1] : 1, numel = 0;
    enum ckpt_dtype was = t ? t->dtype : CKPT_F32, to = rule ? rule->dtype : was;

    ckpt_shape_numel(&numel, &r->shape);
    if (small && ckpt_dtype_class(was) == CKPT_CLASS_FLOAT) {
        to = CKPT_F32;
        if (!rule && was != CKPT_F32)
            ckpt_buf_printf(&w->promoted, "%s %s\n", r->name, ckpt_dtype_name(was));
    } else if (packs && width % GGUF_Q8_0_N == 0) {
        w->packed = true;
        gguf_layout_pack(r, numel);
    } else if (packs) {
        ckpt_log(CKPT_LOG_NOTE, "%s: rows of %lld do not go into blocks of %d, it is F16",
                 r->name, (long long)width, GGUF_Q8_0_N);
        to = CKPT_F16;
    }
    gguf_count_add(&w->count, r, to, numel);
    if (to == was)
        return 0;
    w->cast[w->n_cast++] = (struct ckpt_cast_rule){r->name, to};
    return ckpt_convert_can(to, was)
               ? 0
               : ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s cannot be cast to %s", t->name,
                           ckpt_dtype_name(was), ckpt_dtype_name(to));
}

static int settle_all(struct work *w, struct ckpt_err *err)
{
    int rc;

    w->cast = ckpt_alloc(w->n_row, sizeof *w->cast);
    rc = w->cast ? 0 : ckpt_nomem(err, w->n_row * sizeof *w->cast);
    for (size_t i = 0; rc == 0 && i < w->n_row; i++)
        rc = settle(w, i, err);
    return rc;
}

/* -- keys ------------------------------------------------------------------------------------ */

/* A side file's text in the arena, NULL when there is none. */
static int side_text(struct work *w, const char *name, char **text, size_t *n,
                     struct ckpt_err *err)
{
    const struct ckpt_extra *e = ckpt_source_extra(w->src, name);

    *text = NULL;
    return e ? ckpt_file_slurp(e->file, &w->arena, MAX_SIDE, text, n, err)
             : 0;
}

static int keep_files(struct work *w, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sizeof kept / sizeof kept[0]; i++) {
        json_t *value;
        char *text;
        size_t n;

        rc = side_text(w, kept[i].file, &text, &n, err);
        if (rc)
            ckpt_err_in(err, "%s", kept[i].file);
        if (rc || !text)
            continue;
        value = json_stringn(text, n);
        if (value)
            gguf_put(&w->keys, kept[i].key, "string", value);
        else
            ckpt_log(CKPT_LOG_NOTE, "%s: is no UTF-8, it is not kept", kept[i].file);
    }
    return rc;
}

static int put_tokens(struct work *w, struct ckpt_err *err)
{
    const json_t *size = gguf_config(w->config, "vocab_size");
    json_t *tokenizer = NULL, *settings = NULL;
    char *chat = NULL, key[64];
    bool counted = w->family->gguf_llama;       /* among the architecture's keys */
    size_t n;
    int rc = side_file_read(&tokenizer, w->src, "tokenizer.json", MAX_SIDE, err);

    if (rc == 0)
        rc = side_file_read(&settings, w->src, "tokenizer_config.json", MAX_SIDE, err);
    if (rc == 0)
        rc = side_text(w, "chat_template.jinja", &chat, &n, err);
    if (chat && !ckpt_utf8_valid(chat, n))
        chat = NULL;                            /* keep_files() says so */
    if (rc == 0)
        rc = gguf_token_keys(&w->keys, tokenizer, settings, w->config, chat, err);
    snprintf(key, sizeof key, "%s.vocab_size", w->family->gguf);
    if (!tokenizer && json_is_integer(size) && !counted)    /* else llama.cpp counts the tokens */
        gguf_put(&w->keys, key, "u32", json_incref((json_t *)size));
    json_decref(tokenizer);
    json_decref(settings);
    return rc;
}

static int put_keys(struct work *w, struct ckpt_err *err)
{
    const char *name = json_string_value(json_object_get(w->config, "_name_or_path")), *slash;
    const char *type = json_string_value(json_object_get(w->config, "model_type"));
    struct gguf_keys *keys = &w->keys;
    int rc = 0;

    if (w->family)
        rc = gguf_meta_keys(keys, w->family, w->config, err);
    else
        gguf_put(keys, "general.architecture", "string", json_string(type ? type : "unknown"));
    slash = name ? strrchr(name, '/') : NULL;
    name = slash ? slash + 1 : name;
    if (name && *name)
        gguf_put(keys, "general.name", "string", json_string(name));
    gguf_put(keys, "general.file_type", "u32", json_integer(gguf_count_type(&w->count)));
    gguf_put(keys, "general.quantization_version", "u32", json_integer(2));
    if (rc == 0 && w->family)
        rc = put_tokens(w, err);
    if (rc == 0)
        rc = keep_files(w, err);
    if (w->family)
        gguf_put(keys, "ckpt.prefix", "string", json_string(w->bare ? "" : w->family->prefix));
    if (w->promoted.len > 0 && w->promoted.len <= MAX_PROMOTED)
        gguf_put(keys, "ckpt.promoted", "string",
                 json_stringn((char *)w->promoted.data, w->promoted.len));
    return rc == 0 && (keys->failed || !ckpt_buf_ok(&w->promoted)) ? ckpt_nomem(err, 64) : rc;
}

/* Read config.json, the family, and the values that layouts depend on. */
static int begin(struct work *w, struct ckpt_err *err)
{
    const char *type;
    const json_t *v;
    char names[160];
    int rc = side_file_read(&w->config, w->src, "config.json", MAX_SIDE, err);

    if (rc)
        return rc;
    type = json_string_value(json_object_get(w->config, "model_type"));
    w->family = type ? gguf_family(type) : NULL;
    if (!w->family) {
        ckpt_log(CKPT_LOG_NOTE, "%s%s: tensors keep their names, llama.cpp would not load them",
                 type ? "model_type " : "no config.json", type ? type : "");
        return 0;
    }
    gguf_field(names, w->family, offsetof(struct arch, num_attention_heads));
    rc = gguf_config_int(&w->heads, w->config, names, err);
    w->kv_heads = w->heads;
    gguf_field(names, w->family, offsetof(struct arch, num_key_value_heads));
    if (rc == 0 && gguf_config(w->config, names))
        rc = gguf_config_int(&w->kv_heads, w->config, names, err);
    if (rc)
        return rc;
    v = gguf_config(w->config, gguf_field(names, w->family, offsetof(struct arch, num_experts)));
    w->experts = json_is_integer(v) ? json_integer_value(v) : 0;
    if (w->heads > 65536 || w->kv_heads > 65536 || w->experts < 0 || w->experts > MAX_EXPERTS)
        return ckpt_fail(err, CKPT_ELIMIT, "config.json: more than 65536 heads or experts");
    return gguf_meta_factors(&w->factors, w->family, w->config, err);
}

static int build(struct work *w, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(w->src);
    int rc = begin(w, err);

    if (rc == 0)
        rc = ckpt_map_new(&w->by_name, n, err);
    w->keys.list = json_array();
    w->row = ckpt_alloc(n + 2, sizeof *w->row);         /* at most two computed ones */
    if (rc == 0 && (!w->keys.list || !w->row))
        rc = ckpt_nomem(err, n * sizeof *w->row);
    if (rc == 0)
        rc = add_factors(w, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_tensor(w, i, err);
    if (rc == 0)
        rc = check_experts(w, err);
    if (rc == 0)
        rc = settle_all(w, err);
    if (rc == 0)
        rc = put_keys(w, err);
    return rc;
}

/* A cast loses the mark of packed tensors: list the same tensors once more, marked. */
static int mark(struct ckpt_source **src, struct work *w, struct ckpt_err *err)
{
    struct ckpt_layout_part *part = ckpt_arena_alloc(&w->arena, w->n_row, sizeof *part);
    struct ckpt_source *below = *src;

    *src = NULL;
    if (!part) {
        ckpt_source_close(below);
        return ckpt_nomem(err, w->n_row * sizeof *part);
    }
    for (size_t i = 0; i < w->n_row; i++) {
        part[i].src = i;
        w->row[i].part = &part[i];
        w->row[i].n_part = 1;
        w->row[i].order = CKPT_LAYOUT_PLAIN;
    }
    return ckpt_view_layout(src, below, w->row, w->n_row, NULL, err);
}

int gguf_of_model(struct ckpt_source **out, struct ckpt_source *src,
                  const struct ckpt_cast_rule *rule, const bool *packs, size_t n_rule,
                  struct ckpt_err *err)
{
    struct work w = {.src = src, .rule = rule, .packs = packs, .n_rule = n_rule};
    struct ckpt_source *laid = NULL;
    json_t *info;
    int rc;

    *out = NULL;
    ckpt_buf_init(&w.promoted, (size_t)64 << 20);
    rc = build(&w, err);
    info = rc == 0 ? json_pack("{s:s,s:O}", "format", "gguf", "gguf", w.keys.list) : NULL;
    if (rc == 0 && !info)
        rc = ckpt_nomem(err, 64);
    if (rc)
        ckpt_source_close(src);
    else
        rc = ckpt_view_layout(&laid, src, w.row, w.n_row, info, err);
    if (rc == 0 && w.n_cast) {
        struct ckpt_source *below = laid;

        rc = ckpt_view_cast(&laid, below, w.cast, w.n_cast, err);
        if (rc == 0 && w.packed)
            rc = mark(&laid, &w, err);
    }
    if (rc == 0)
        *out = laid;
    ckpt_buf_release(&w.promoted);
    ckpt_map_free(w.by_name);
    json_decref(w.config);
    json_decref(w.keys.list);
    json_decref(w.factors);
    ckpt_free(w.row);
    ckpt_free(w.cast);
    ckpt_arena_release(&w.arena);
    return rc;
}
