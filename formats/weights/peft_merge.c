/*
 * peft_merge - an adapter's tensors as updates of its base's; see peft.h.
 *
 *   <module>.lora_A.weight, .lora_B.weight            W + s B A, transposed for Conv1D
 *   <module>.lora_embedding_A, .lora_embedding_B      W + s (B A) transposed
 *   <module>.lora_magnitude_vector[.weight]           DoRA: lengths of the outputs
 *   <module>.base_layer.weight, .base_layer.bias      the adapter's own copy of the base's
 *   <module>.token_adapter.trainable_tokens_delta     rows that replace the base's
 *   anything else                                     a whole copy of the tensor of that name
 *
 * all behind "base_model.model.".  A tensor that matches nothing is an error.
 * Source: peft 0.21 utils/save_and_load.py, tuners/lora/layer.py, tuners/trainable_tokens.
 */
#include <stdio.h>
#include <string.h>

#include "formats/weights/config_text.h"
#include "formats/weights/peft.h"
#include "formats/weights/peft_config.h"
#include "formats/weights/peft_names.h"
#include "libckpt/json.h"
#include "libckpt/log.h"
#include "libckpt/view_extra.h"
#include "libckpt/view_lora.h"

#define NONE CKPT_LORA_NONE

struct merge {
    struct ckpt_source      *base, *adapter;
    struct peft_config       config;
    struct ckpt_lora_update *update;    /* room for two a tensor of the adapter, and one */
    size_t                   n;
    size_t                  *of_base;   /* [base] its update in place, or NONE */
    bool                    *taken;     /* [adapter] tensors that are accounted for */
    bool                     square, turned;    /* see orient */
    size_t                   embedding; /* of a base without a head of its own, or NONE */
    bool                     untied;    /* the head becomes a tensor of its own */
    struct ckpt_arena        arena;     /* names, rows */
    struct ckpt_err         *err;
};

static const struct ckpt_tensor *of_adapter(const struct merge *m, size_t i)
{
    return ckpt_source_tensor(m->adapter, i);
}

static struct ckpt_lora_update *new_update(struct merge *m, size_t base, const char *as)
{
    struct ckpt_lora_update *u = &m->update[m->n];

    *u = (struct ckpt_lora_update){.base = base, .as = as, .own = NONE, .a = NONE, .b = NONE,
                                   .magnitude = NONE, .rows = NONE};
    if (!as)
        m->of_base[base] = m->n;
    m->n++;
    return u;
}

static bool ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n > k && strcmp(s + n - k, tail) == 0;
}

/* <module><suffix> of the adapter, where name is <module><tail>; NONE when absent. */
static size_t sibling(struct merge *m, const char *name, const char *tail, const char *suffix)
{
    char other[CKPT_MAX_NAME + 64];

    snprintf(other, sizeof other, "%.*s%s", (int)(strlen(name) - strlen(tail)), name, suffix);
    return ckpt_source_find(m->adapter, other);
}

static int module_of(char module[CKPT_MAX_NAME + 1], const char *name, const char *tail)
{
    static const char prefix[] = "base_model.model.";
    size_t skip = strncmp(name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    size_t n = strlen(name) - strlen(tail);

    return snprintf(module, CKPT_MAX_NAME + 1, "%.*s", n > skip ? (int)(n - skip) : 0, name + skip);
}

/*
 * The update of <module><suffix>.  The head of a base that has only the embedding it is tied to
 * becomes a further tensor.
 */
static struct ckpt_lora_update *update_of(struct merge *m, const char *module, const char *suffix,
                                          const char *whose)
{
    size_t base = peft_find(m->base, module, suffix);
    char *as;

    if (base == SIZE_MAX && m->embedding != NONE && peft_module_ends(module, "lm_head") &&
        strcmp(suffix, ".weight") == 0) {
        as = ckpt_arena_printf(&m->arena, "%s%s", module, suffix);
        if (!as)
            ckpt_nomem(m->err, strlen(module));
        m->untied = true;
        return as ? new_update(m, m->embedding, as) : NULL;
    }
    if (base == SIZE_MAX) {
        ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: the base has no %s%s", whose,
                     module, suffix);
        return NULL;
    }
    if (m->of_base[base] != NONE) {
        ckpt_fail_as(m->err, CKPT_EMISMATCH, "duplicate", "%s: %s is changed by another tensor too",
                     whose, ckpt_source_tensor(m->base, base)->name);
        return NULL;
    }
    return new_update(m, base, NULL);
}

/* Families whose blocks are made of Conv1D, which keeps its weight as [in, out]. */
static bool base_has_conv1d(const struct merge *m)
{
    static const char *const types[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
    const char *type = json_string_value(json_object_get(
        json_object_get(ckpt_source_info(m->base), "config"), "model_type"));

    for (size_t i = 0; type && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

/*
 * Whether W is [in, out].  The shapes say it; of a square matrix the base's family does, or else
 * fan_in_fan_out, which peft saves as the last module it looked at had it.
 */
static bool orient(struct merge *m, const struct ckpt_lora_update *u, const char *module)
{
    const struct ckpt_shape *w = &ckpt_source_tensor(m->base, u->base)->shape;
    int64_t in = of_adapter(m, u->a)->shape.dim[1], out = of_adapter(m, u->b)->shape.dim[0];
    bool plain = w->dim[0] == out && w->dim[1] == in;
    bool turned = w->dim[0] == in && w->dim[1] == out;
    bool head = peft_module_ends(module, "lm_head") || peft_module_ends(module, "score");

    if (plain != turned) {
        m->turned |= turned != m->config.fan_in_fan_out && !head;
        return turned;
    }
    if (plain && base_has_conv1d(m))
        return !head;
    m->square |= plain;
    return m->config.fan_in_fan_out;
}

static int take_magnitude(struct merge *m, struct ckpt_lora_update *u, const char *name,
                          const char *tail)
{
    if (!m->config.dora)
        return 0;
    u->magnitude = sibling(m, name, tail, ".lora_magnitude_vector");
    if (u->magnitude == NONE)
        u->magnitude = sibling(m, name, tail, ".lora_magnitude_vector.weight");
    if (u->magnitude == NONE)
        return ckpt_fail(m->err, CKPT_EFORMAT,
                         "%s: use_dora, but its lora_magnitude_vector is absent",
                         name);
    m->taken[u->magnitude] = true;
    return 0;
}

/* Factor A, its partner and what else belongs to the module. */
static int take_pair(struct merge *m, size_t a, const char *tail, const char *partner,
                     bool embedding)
{
    const struct ckpt_tensor *t = of_adapter(m, a);
    size_t b = sibling(m, t->name, tail, partner);
    char module[CKPT_MAX_NAME + 1];
    struct ckpt_lora_update *u;

    module_of(module, t->name, tail);
    if (b == NONE)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: its partner %s is absent", t->name, partner);
    if (t->shape.rank != 2 || t->numel == 0 || of_adapter(m, b)->shape.rank != 2)
        return t->numel == 0 || t->shape.rank < 2
                   ? ckpt_fail(m->err, CKPT_EFORMAT,
                               "%s: is empty or flat: saved from ZeRO-3 without gathering", t->name)
                   : ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                               "%s: has %d axes: adapters of convolutions are not merged", t->name,
                               t->shape.rank);
    u = update_of(m, module, ".weight", t->name);
    if (!u)
        return m->err->code;
    u->a = a;
    u->b = b;
    u->own = sibling(m, t->name, tail, ".base_layer.weight");
    m->taken[a] = m->taken[b] = true;
    if (u->own != NONE)
        m->taken[u->own] = true;
    if (ckpt_source_tensor(m->base, u->base)->shape.rank == 2)  /* others the view refuses */
        u->transposed = embedding || orient(m, u, module);
    if (take_magnitude(m, u, t->name, tail))
        return m->err->code;
    return peft_config_scale(&u->scale, &m->config, module, t->shape.dim[0], m->err);
}

/* Rows of an embedding, of all names it has. */
static int take_tokens(struct merge *m, size_t i, const char *tail)
{
    const struct ckpt_tensor *t = of_adapter(m, i);
    char module[CKPT_MAX_NAME + 1];
    const json_t *list;
    struct ckpt_lora_update *u;
    size_t base, n, root;
    int64_t *row;

    module_of(module, t->name, tail);
    list = peft_config_tokens(&m->config, module);
    base = peft_find(m->base, module, ".weight");
    if (!list)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: trainable_token_indices does not name %s",
                         t->name, module);
    if (base == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: the base has no %s.weight",
                            t->name, module);
    n = json_array_size(list);
    row = ckpt_arena_alloc(&m->arena, n, sizeof *row);
    if (!row)
        return ckpt_nomem(m->err, n * sizeof *row);
    for (size_t k = 0; k < n; k++) {
        if (!json_is_integer(json_array_get(list, k)))
            return ckpt_fail(m->err, CKPT_EFORMAT, "trainable_token_indices: no integer");
        row[k] = json_integer_value(json_array_get(list, k));
    }
    m->taken[i] = true;
    root = ckpt_source_tensor(m->base, base)->alias_of;
    for (size_t k = 0; k < ckpt_source_count(m->base); k++) {
        if (k != base && ckpt_source_tensor(m->base, k)->alias_of != root)
            continue;
        u = m->of_base[k] == NONE ? new_update(m, k, NULL) : &m->update[m->of_base[k]];
        u->rows = i;
        u->row = row;
        u->n_row = n;
    }
    return 0;
}

/* A tensor that is no factor: a whole copy of one of the base's. */
static int take_copy(struct merge *m, size_t i)
{
    static const char *const partners[] = {".lora_B.weight", ".lora_embedding_B",
                                           ".lora_magnitude_vector",
                                           ".lora_magnitude_vector.weight", ".lora_B.bias"};
    static const struct { const char *tail, *suffix; } copies[] = {
        {".base_layer.weight", ".weight"}, {".base_layer.bias", ".bias"},
        {".weight", ".weight"}, {".bias", ".bias"}, {"", ""},
    };
    const char *name = of_adapter(m, i)->name;
    struct ckpt_lora_update *u;
    char module[CKPT_MAX_NAME + 1];
    size_t k = 0;

    for (size_t p = 0; p < sizeof partners / sizeof partners[0]; p++)
        if (ends(name, partners[p]))
            return ckpt_fail(m->err, CKPT_EFORMAT, "%s: belongs to no pair of factors", name);
    while (copies[k].tail[0] && !ends(name, copies[k].tail))
        k++;
    module_of(module, name, copies[k].tail);
    u = update_of(m, module, copies[k].suffix, name);
    if (!u)
        return m->err->code;
    u->own = i;
    m->taken[i] = true;
    return 0;
}

static int take_all(struct merge *m)
{
    static const struct { const char *a, *b; bool embedding; } pairs[] = {
        {".lora_A.weight", ".lora_B.weight", false},
        {".lora_embedding_A", ".lora_embedding_B", true},
    };
    static const char tokens[] = ".token_adapter.trainable_tokens_delta";
    size_t n = ckpt_source_count(m->adapter);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++)
        for (size_t k = 0; rc == 0 && k < 2; k++)
            if (ends(of_adapter(m, i)->name, pairs[k].a))
                rc = take_pair(m, i, pairs[k].a, pairs[k].b, pairs[k].embedding);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!m->taken[i] && ends(of_adapter(m, i)->name, tokens))
            rc = take_tokens(m, i, tokens);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!m->taken[i])
            rc = take_copy(m, i);
    if (rc == 0 && m->n == 0)
        rc = ckpt_fail(m->err, CKPT_EMISMATCH, "the adapter has no tensors");
    if (rc == 0 && m->turned && m->square)
        rc = ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                       "fan_in_fan_out is %s, some shapes say otherwise, "
                       "and others are square", m->config.fan_in_fan_out ? "true" : "false");
    return rc;
}

/* -- ties ------------------------------------------------------------------------------------ */

static const json_t *base_config(const struct merge *m)
{
    return json_object_get(ckpt_source_info(m->base), "config");
}

/* Whether the base's head is its embedding: said so, or not said and no tensor of its own. */
static bool is_tied(const struct merge *m)
{
    const json_t *config = base_config(m), *said = json_object_get(config, "tie_word_embeddings");
    const char *arch = json_string_value(json_array_get(json_object_get(config, "architectures"),
                                                        0));
    size_t head = ckpt_source_find(m->base, "lm_head.weight");

    if (json_is_boolean(said))
        return json_is_true(said);
    if (head != SIZE_MAX)
        return ckpt_source_tensor(m->base, head)->alias_of != head;
    return arch && (strstr(arch, "CausalLM") || strstr(arch, "LMHead") ||
                    strstr(arch, "ConditionalGeneration"));
}

/*
 * An embedding that changes alone leaves the head as it was: the head becomes a tensor of its
 * own.  Rows for tokens, and adapters that were trained tied, change both, and the tie stays.
 */
static int untie(struct merge *m)
{
    size_t e = peft_find_embedding(m->base), head = ckpt_source_find(m->base, "lm_head.weight");
    const struct ckpt_lora_update *u = e == SIZE_MAX || m->of_base[e] == NONE
                                           ? NULL : &m->update[m->of_base[e]];
    bool alone = u && (u->a != NONE || u->own != NONE) && !m->config.keeps_ties && is_tied(m);

    if (alone && head == SIZE_MAX && !m->untied)
        new_update(m, e, "lm_head.weight");
    m->untied |= alone || (head != SIZE_MAX && e != SIZE_MAX && m->of_base[head] != NONE &&
                           is_tied(m) && m->update[m->of_base[head]].rows == NONE);
    if (m->untied && json_is_true(json_object_get(base_config(m), "is_encoder_decoder")))
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                         "the adapter changes one of two tied embeddings "
                         "of an encoder-decoder, which cannot be told apart afterwards");
    return 0;
}

/* config.json, and the fact it is, now that the head is no longer the embedding. */
static int tell_untied(struct ckpt_source **src, struct ckpt_err *err)
{
    const struct ckpt_extra *e = ckpt_source_extra(*src, "config.json");
    struct ckpt_source *below = *src;
    struct ckpt_arena a = {0};
    struct ckpt_buf out;
    json_t *info = json_deep_copy(ckpt_source_info(*src));
    char *text;
    size_t n;
    int rc;

    if (!e) {
        json_decref(info);
        ckpt_log(CKPT_LOG_WARNING,
                 "the merged head is no longer tied to the embedding, and there is "
                 "no config.json to say so");
        return 0;
    }
    ckpt_buf_init(&out, SIZE_MAX);
    rc = info ? ckpt_file_slurp(e->file, &a, CKPT_JSON_MAX_BYTES, &text, &n, err)
              : ckpt_nomem(err, 64);
    if (rc == 0)
        rc = config_set(&out, text, n, "tie_word_embeddings", "false", err);
    if (rc == 0) {
        json_object_set_new(json_object_get(info, "config"), "tie_word_embeddings", json_false());
        *src = NULL;
        rc = ckpt_view_extra(src, below, "config.json", out.data, out.len, info, err);
        info = NULL;
    }
    json_decref(info);
    ckpt_buf_release(&out);
    ckpt_arena_release(&a);
    return rc;
}

/* -- all together ---------------------------------------------------------------------------- */

static int prepare(struct merge *m)
{
    size_t n = ckpt_source_count(m->adapter), n_base = ckpt_source_count(m->base);

    /* Rows of tokens change every name of a tied embedding. */
    m->update = ckpt_alloc(2 * n + n_base + 1, sizeof *m->update);
    m->of_base = ckpt_alloc(n_base, sizeof *m->of_base);
    m->taken = ckpt_alloc(n, sizeof *m->taken);
    if (!m->update || !m->of_base || !m->taken)
        return ckpt_nomem(m->err, (n + n_base) * sizeof *m->update);
    for (size_t i = 0; i < n_base; i++)
        m->of_base[i] = NONE;
    if (peft_config_init(&m->config, json_object_get(ckpt_source_info(m->adapter),
                                                     "adapter_config"), m->err))
        return m->err->code;
    m->embedding = ckpt_source_find(m->base, "lm_head.weight") == SIZE_MAX && is_tied(m)
                       ? peft_find_embedding(m->base) : NONE;
    return take_all(m) ? m->err->code : untie(m);
}

int peft_merge(struct ckpt_source **out, struct ckpt_source *base, struct ckpt_source *adapter,
               struct ckpt_err *err)
{
    struct merge m = {.base = base, .adapter = adapter, .err = err};
    int rc = prepare(&m);

    *out = NULL;
    if (rc) {
        ckpt_source_close(base);
        ckpt_source_close(adapter);
    } else {
        rc = ckpt_view_lora(out, base, adapter, m.update, m.n, err);
    }
    if (rc == 0 && m.untied && (rc = tell_untied(out, err)) != 0) {
        ckpt_source_close(*out);
        *out = NULL;
    }
    peft_config_release(&m.config);
    ckpt_free(m.update);
    ckpt_free(m.of_base);
    ckpt_free(m.taken);
    ckpt_arena_release(&m.arena);
    return rc;
}
