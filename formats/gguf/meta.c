/* gguf/meta - see gguf/meta.h. */
#include "formats/gguf/meta.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"

#define THETA  "rope_parameters.rope_theta|rope_theta"
#define LENGTH_BEFORE                                                                          \
    "original_max_position_embeddings|rope_parameters.original_max_position_embeddings|"       \
    "rope_scaling.original_max_position_embeddings|max_position_embeddings"

#define AT(field) offsetof(struct arch, field)
#define NAMED     SIZE_MAX

/* Properties that a family needs for a key to be written. */
enum trait { LAYER_NORM = 1, RMS_NORM = 2, ROPE = 4, LLAMA = 8, LONGROPE = 16 };

/* A key, its kind, and its place in config.json: under the name of a field's key, or NAMED (of
 * several names the first without a dot is written back); a family may override it. */
static const struct row {
    const char *key, *kind;
    unsigned    of;
    size_t      at;
    const char *names;
} rows[] = {
    {"block_count", "u32", 0, AT(num_hidden_layers), NULL},
    {"context_length", "u32", 0, AT(max_position_embeddings), NULL},
    {"embedding_length", "u32", 0, AT(hidden_size), NULL},
    {"feed_forward_length", "u32", 0, AT(intermediate_size), NULL},
    {"attention.head_count", "u32", 0, AT(num_attention_heads), NULL},
    {"attention.head_count_kv", "u32", ROPE, NAMED, "num_key_value_heads|num_attention_heads"},
    {"attention.head_count_kv", "u32", LAYER_NORM, NAMED, NULL},
    {"rope.freq_base", "f32", ROPE, NAMED, THETA},
    {"attention.layer_norm_rms_epsilon", "f32", RMS_NORM, AT(norm_eps), NULL},
    {"attention.layer_norm_epsilon", "f32", LAYER_NORM, AT(norm_eps), NULL},
    {"expert_count", "u32", 0, AT(num_experts), NULL},
    {"expert_used_count", "u32", 0, AT(num_experts_per_tok), NULL},
    {"expert_feed_forward_length", "u32", 0, AT(moe_intermediate_size), NULL},
    {"expert_shared_feed_forward_length", "u32", 0, NAMED, NULL},
    {"attention.key_length", "u32", ROPE, NAMED, "head_dim"},
    {"attention.value_length", "u32", ROPE, NAMED, "head_dim"},
    {"vocab_size", "u32", LLAMA, AT(vocab_size), NULL},
    {"rope.scaling.original_context_length", "u32", LONGROPE, NAMED, LENGTH_BEFORE},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static unsigned traits(const struct family *f)
{
    return (f->fixed.norm == ARCH_RMS_NORM ? RMS_NORM : LAYER_NORM) |
           (f->fixed.pos == ARCH_POS_ROPE ? ROPE : 0) | (f->gguf_llama ? LLAMA : 0) |
           (f->longrope ? LONGROPE : 0);
}

const char *gguf_field(char dst[160], const struct family *f, size_t at)
{
    const struct family_key *k = family_key_of(f, at);

    dst[0] = '\0';
    if (k)
        snprintf(dst, 160, "%s%s%s", k->name, k->alias ? "|" : "", k->alias ? k->alias : "");
    return dst;
}

/* "a|b": the names of a row's value in the family's config.json; "" when it has none. */
static const char *names_of(char dst[160], const struct family *f, const struct row *r)
{
    dst[0] = '\0';
    if (r->of & ~traits(f))
        return dst;
    for (const struct family_gguf_key *g = f->gguf_keys; g && g->key; g++)
        if (strcmp(g->key, r->key) == 0)
            return g->names;
    return r->at == NAMED ? (r->names ? r->names : dst) : gguf_field(dst, f, r->at);
}

void gguf_put(struct gguf_keys *keys, const char *key, const char *kind, json_t *value)
{
    json_t *pair = json_pack("[s,s,o]", key, kind, value);

    keys->failed |= !pair || json_array_append_new(keys->list, pair) != 0;
}

/* One name of up to two parts. */
static const json_t *config_at(const json_t *config, const char *name, size_t n)
{
    const char *dot = memchr(name, '.', n);
    char part[64];
    const json_t *v;

    if (dot) {
        config = config_at(config, name, (size_t)(dot - name));
        n -= (size_t)(dot + 1 - name);
        name = dot + 1;
    }
    if (n >= sizeof part)
        return NULL;
    memcpy(part, name, n);
    part[n] = '\0';
    v = json_object_get(config, part);
    return json_is_null(v) ? NULL : v;
}

const json_t *gguf_config(const json_t *config, const char *names)
{
    const json_t *v = NULL;

    while (!v && *names) {
        size_t n = strcspn(names, "|");

        v = config_at(config, names, n);
        names += n + (names[n] == '|');
    }
    return v;
}

int gguf_config_int(int64_t *out, const json_t *config, const char *names, struct ckpt_err *err)
{
    const json_t *v = gguf_config(config, names);

    *out = json_integer_value(v);
    if (!json_is_integer(v) || *out < 1 || *out > INT32_MAX)
        return ckpt_fail(err, CKPT_EFORMAT, "config.json: %s is no integer of 1 to 2147483647",
                         names);
    return 0;
}

static const json_t *rope_of(const json_t *config)
{
    const json_t *rope = gguf_config(config, "rope_parameters|rope_scaling");
    const json_t *full = json_object_get(rope, "full_attention");

    return full ? full : rope;
}

static const char *rope_type(const json_t *config)
{
    const char *type = json_string_value(gguf_config(rope_of(config), "rope_type|type"));

    return type ? type : "default";
}

static void put_own(struct gguf_keys *keys, const struct family *f, const char *key,
                    const char *kind, json_t *value)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", f->gguf, key);
    gguf_put(keys, name, kind, value);
}

static void put_number(struct gguf_keys *keys, const struct family *f, const char *key,
                       const json_t *v)
{
    if (json_is_number(v))
        put_own(keys, f, key, "f32", json_real(json_number_value(v)));
}

/* linear and yarn; the factors of llama3 and longrope are tensors. */
static void put_rope(struct gguf_keys *keys, const struct family *f, const json_t *config)
{
    static const char *const yarn_keys[][2] = {
        {"rope.scaling.yarn_ext_factor", "extrapolation_factor"},
        {"rope.scaling.yarn_attn_factor", "attention_factor|attn_factor"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"}, {"rope.scaling.yarn_beta_slow", "beta_slow"},
    };
    const json_t *rope = rope_of(config);
    const json_t *old = gguf_config(rope, "original_max_position_embeddings");
    const char *type = rope_type(config);
    bool yarn = strcmp(type, "yarn") == 0;

    if ((yarn || strcmp(type, "linear") == 0) && gguf_config(rope, "factor")) {
        put_own(keys, f, "rope.scaling.type", "string", json_string(type));
        put_number(keys, f, "rope.scaling.factor", gguf_config(rope, "factor"));
    }
    if (yarn && json_is_integer(old))
        put_own(keys, f, "rope.scaling.original_context_length", "u32",
                json_integer(json_integer_value(old)));
    for (size_t i = 0; yarn && i < sizeof yarn_keys / sizeof yarn_keys[0]; i++)
        put_number(keys, f, yarn_keys[i][0], gguf_config(rope, yarn_keys[i][1]));
}

/* Read the hidden size, and the size of a head. */
static int read_sizes(int64_t *hidden, int64_t *heads, int64_t *head_dim, const struct family *f,
                      const json_t *config, struct ckpt_err *err)
{
    const json_t *v = gguf_config(config, "head_dim");
    char names[160];
    int rc = gguf_config_int(hidden, config, gguf_field(names, f, AT(hidden_size)), err);

    if (rc == 0)
        rc = gguf_config_int(heads, config, gguf_field(names, f, AT(num_attention_heads)), err);
    if (rc == 0)
        *head_dim = json_is_integer(v) ? json_integer_value(v) : *hidden / *heads;
    return rc;
}

/* The factor by which longrope scales attention. */
static int put_attn_factor(struct gguf_keys *keys, const struct family *f, const json_t *config,
                           struct ckpt_err *err)
{
    int64_t longest, old;
    double scale, factor = 1;
    int rc = gguf_config_int(&longest, config, "max_position_embeddings", err);

    if (rc == 0)
        rc = gguf_config_int(&old, config, LENGTH_BEFORE, err);
    if (rc)
        return rc;
    scale = (double)longest / (double)old;
    if (scale > 1 && old > 1)
        factor = sqrt(1 + log(scale) / log((double)old));
    put_own(keys, f, "rope.scaling.attn_factor", "f32", json_real(factor));
    return 0;
}

/* Keys of a family with longrope: the rotated part of a head, the window, attention. */
static int put_longrope(struct gguf_keys *keys, const struct family *f, const json_t *config,
                        int64_t hidden, int64_t heads, struct ckpt_err *err)
{
    const json_t *v = gguf_config(config,
                                  "partial_rotary_factor|rope_parameters.partial_rotary_factor");
    double part = json_is_number(v) ? json_number_value(v) : 1;

    if (!(part > 0 && part <= 1))
        return ckpt_fail(err, CKPT_EFORMAT, "config.json: partial_rotary_factor is %g", part);
    put_own(keys, f, "rope.dimension_count", "u32",
            json_integer((json_int_t)(part * (double)hidden) / heads));
    put_own(keys, f, "attention.sliding_window", "u32",
            json_integer(json_integer_value(gguf_config(config, "sliding_window"))));
    return gguf_config(rope_of(config), "long_factor") ? put_attn_factor(keys, f, config, err)
                                                       : 0;
}

/* Keys that follow from several values of config.json. */
static int put_derived(struct gguf_keys *keys, const struct family *f, const json_t *config,
                       struct ckpt_err *err)
{
    const struct family_key *ff = family_key_of(f, AT(intermediate_size));
    int64_t hidden, heads, head_dim;
    int rc = read_sizes(&hidden, &heads, &head_dim, f, config, err);

    if (rc)
        return rc;
    if (f->gguf_llama)
        put_own(keys, f, "rope.dimension_count", "u32", json_integer(head_dim));
    if (f->ff_factor && !(ff && gguf_config(config, ff->name)))
        put_own(keys, f, "feed_forward_length", "u32", json_integer(f->ff_factor * hidden));
    return f->longrope ? put_longrope(keys, f, config, hidden, heads, err) : 0;
}

int gguf_meta_keys(struct gguf_keys *keys, const struct family *f, const json_t *config,
                   struct ckpt_err *err)
{
    char dst[160];

    gguf_put(keys, "general.architecture", "string", json_string(f->gguf));
    gguf_put(keys, "general.type", "string", json_string("model"));
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *r = &rows[i];
        const char *names = names_of(dst, f, r);
        const json_t *v = gguf_config(config, names);
        bool real = strcmp(r->kind, "f32") == 0;

        if (!v)
            continue;
        if (real ? !json_is_number(v) : !json_is_integer(v) || json_integer_value(v) < 0 ||
                                            json_integer_value(v) > UINT32_MAX)
            return ckpt_fail(err, CKPT_EFORMAT, "config.json: %s is no %s", names, r->kind);
        put_own(keys, f, r->key, r->kind, real ? json_real(json_number_value(v))
                                               : json_integer(json_integer_value(v)));
    }
    if (traits(f) & ROPE && !f->longrope)
        put_rope(keys, f, config);
    return put_derived(keys, f, config, err);
}

/* -- factors --------------------------------------------------------------------------------- */

static double number_or(const json_t *rope, const char *name, double none)
{
    const json_t *v = gguf_config(rope, name);

    return json_is_number(v) ? json_number_value(v) : none;
}

/* Llama 3.1's stretching of low frequencies, in f32 as torch computes it. */
static json_t *llama3_factors(const json_t *config, int64_t dim)
{
    const json_t *rope = rope_of(config), *theta = gguf_config(config, THETA);
    float base = (float)(json_is_number(theta) ? json_number_value(theta) : 10000.0);
    float factor = (float)number_or(rope, "factor", 8), low = (float)number_or(rope,
        "low_freq_factor", 1), high = (float)number_or(rope, "high_freq_factor", 4);
    float old = (float)number_or(rope, "original_max_position_embeddings", 8192);
    json_t *list = json_array();

    for (int64_t i = 0; list && i < dim; i += 2) {
        float freq = 1.0f / powf(base, (float)i / (float)dim);
        float length = (float)(2 * 3.14159265358979323846) / freq, x = 1;

        if (length > old / low) {
            x = factor;
        } else if (length >= old / high) {
            float smooth = (old / length - low) / (high - low);

            x = 1 / ((1 - smooth) / factor + smooth);
        }
        if (json_array_append_new(list, json_real(isfinite(x) ? (double)x : 1))) {
            json_decref(list);
            list = NULL;
        }
    }
    return list;
}

int gguf_meta_factors(json_t **out, const struct family *f, const json_t *config,
                      struct ckpt_err *err)
{
    const json_t *rope = rope_of(config);
    int64_t hidden, heads, dim;
    bool ok = true;
    int rc = read_sizes(&hidden, &heads, &dim, f, config, err);

    if (rc)
        return rc;
    *out = json_object();
    if (*out && f->gguf_llama && strcmp(rope_type(config), "llama3") == 0 && dim < 65536)
        ok = json_object_set_new(*out, "rope_freqs.weight", llama3_factors(config, dim)) == 0;
    if (*out && f->longrope && gguf_config(rope, "long_factor") &&
        gguf_config(rope, "short_factor"))
        ok = json_object_set(*out, "rope_factors_long.weight",
                             (json_t *)gguf_config(rope, "long_factor")) == 0 &&
             json_object_set(*out, "rope_factors_short.weight",
                             (json_t *)gguf_config(rope, "short_factor")) == 0;
    if (*out && ok)
        return 0;
    json_decref(*out);
    *out = NULL;
    return ckpt_nomem(err, 256);
}

/* -- reading keys ---------------------------------------------------------------------------- */

static const json_t *own(const json_t *keys, const struct family *f, const char *key)
{
    char name[128];

    snprintf(name, sizeof name, "%s.%s", f->gguf, key);
    return json_object_get(keys, name);
}

/* The first name of a list that is not a path. */
static void plain_name(char *dst, size_t size, const char *names)
{
    for (;;) {
        size_t n = strcspn(names, "|");

        snprintf(dst, size, "%.*s", (int)n, names);
        if (!strchr(dst, '.') || !names[n])
            return;
        names += n + 1;
    }
}

/* A number that was f32, with as few digits as identify it: 1e-05. */
static json_t *shortest(const json_t *v)
{
    char text[64];

    if (!json_is_real(v))
        return json_incref((json_t *)v);
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, json_real_value(v));
        if (strtof(text, NULL) == (float)json_real_value(v))
            return json_real(strtod(text, NULL));
    }
    return json_incref((json_t *)v);
}

static bool set_rope(json_t *config, const struct family *f, const json_t *keys)
{
    const json_t *type = own(keys, f, "rope.scaling.type");
    const json_t *factor = own(keys, f, "rope.scaling.factor");
    const json_t *old = own(keys, f, "rope.scaling.original_context_length");
    json_t *rope;

    if (!json_is_string(type) || !json_is_number(factor) ||
        (strcmp(json_string_value(type), "linear") != 0 &&
         strcmp(json_string_value(type), "yarn") != 0))
        return true;
    rope = json_pack("{s:O,s:O}", "rope_type", type, "factor", factor);
    if (rope && json_is_integer(old))
        json_object_set(rope, "original_max_position_embeddings", (json_t *)old);
    return rope && json_object_set_new(config, "rope_scaling", rope) == 0;
}

int gguf_meta_config(json_t **out, const struct family *f, const json_t *keys, bool tied,
                     int64_t vocab_size, struct ckpt_err *err)
{
    static const struct { const char *key, *name; } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token_id"},
        {"tokenizer.ggml.eos_token_id", "eos_token_id"},
        {"tokenizer.ggml.padding_token_id", "pad_token_id"},
    };
    json_t *config = json_pack("{s:[s],s:s,s:b}", "architectures", f->architecture, "model_type",
                               f->model_type, "tie_word_embeddings", tied);
    bool ok = config != NULL;
    char name[160], dst[160];

    for (size_t i = 0; ok && i < N_ROWS; i++) {
        const char *names = names_of(dst, f, &rows[i]);
        const json_t *v = own(keys, f, rows[i].key);

        plain_name(name, sizeof name, names);
        if (*names && json_is_number(v))
            ok = json_object_set_new(config, name, shortest(v)) == 0;
    }
    if (ok && own(keys, f, "attention.sliding_window") &&
        json_integer_value(own(keys, f, "attention.sliding_window")) > 0)
        ok = json_object_set(config, "sliding_window",
                             (json_t *)own(keys, f, "attention.sliding_window")) == 0;
    for (size_t i = 0; ok && i < 3; i++)
        if (json_object_get(keys, ids[i].key))
            ok = json_object_set(config, ids[i].name, json_object_get(keys, ids[i].key)) == 0;
    if (ok && vocab_size > 0)
        ok = json_object_set_new(config, "vocab_size", json_integer(vocab_size)) == 0;
    if (ok && traits(f) & ROPE && !f->longrope)
        ok = set_rope(config, f, keys);
    if (!ok) {
        json_decref(config);
        return ckpt_nomem(err, 256);
    }
    *out = config;
    return 0;
}
