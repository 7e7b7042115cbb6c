/*
 * peft/merge - an adapter's tensors as updates of its base's; see peft.h.
 *
 *   <module>.lora_A.weight, .lora_B.weight            W + s B A, transposed for Conv1D
 *   <module>.lora_B.bias                              lora_bias: bias + s B's bias
 *   <module>.lora_embedding_A, .lora_embedding_B      W + s (B A) transposed
 *   <module>.lora_magnitude_vector[.weight]           DoRA: lengths of the outputs
 *   <module>.base_layer.weight, .base_layer.bias      the adapter's own copy of the base's
 *   <module>.token_adapter.trainable_tokens_delta     rows that replace the base's
 *   <module>.token_adapter.base_layer.weight          its own copy of what they replace
 *   <module>.modules_to_save.*, .original_module.*    saved a second time beside <module>.*
 *   anything else                                     a whole copy of the tensor of that name
 *
 * all after "base_model.model.".  A tensor that matches nothing is an error.  Factors of
 * convolutions are matrices of their first axis and all others.  Source: peft 0.21
 * utils/save_and_load.py, tuners/lora/layer.py, tuners/trainable_tokens.
 */
#include <stdio.h>
#include <string.h>

#include "formats/peft/peft.h"
#include "formats/peft/experts.h"
#include "formats/peft/head.h"
#include "formats/peft/names.h"
#include "formats/peft/tied.h"

#define NONE PEFT_NONE

struct ckpt_lora_update *peft_update_new(struct peft_updates *m, size_t base, const char *as)
{
    struct ckpt_lora_update *u;

    if (ckpt_reserve(&m->update, m->n, &m->cap, sizeof *u, m->err))
        return NULL;
    u = &m->update[m->n];
    *u = (struct ckpt_lora_update){.base = base, .as = as, .from = m->from, .weight = m->weight,
                                   .finite = true, .own = NONE, .a = NONE, .b = NONE,
                                   .magnitude = NONE, .add = NONE, .rows = NONE};
    if (!as)
        m->of_base[base] = m->n;
    m->n++;
    return u;
}

int peft_update_check(const struct peft_updates *m, size_t base, size_t whose)
{
    if (m->of_base[base] == NONE)
        return 0;
    return ckpt_fail_as(m->err, CKPT_EMISMATCH, "duplicate",
                        "%s: %s is changed by another tensor too",
                        peft_of_adapter(m, whose)->name, ckpt_source_tensor(m->base, base)->name);
}

bool peft_ends(const char *s, const char *tail)
{
    size_t n = strlen(s), k = strlen(tail);

    return n > k && strcmp(s + n - k, tail) == 0;
}

size_t peft_sibling(const struct peft_updates *m, const char *name, const char *tail,
                    const char *suffix)
{
    char other[CKPT_MAX_NAME + 64];

    snprintf(other, sizeof other, "%.*s%s", (int)(strlen(name) - strlen(tail)), name, suffix);
    return ckpt_source_find(m->adapter, other);
}

/* The update of <module><suffix>, created if absent. */
static struct ckpt_lora_update *update_of(struct peft_updates *m, const char *module,
                                          const char *suffix, size_t whose)
{
    size_t base = peft_find(m->base, module, suffix);

    if (base == SIZE_MAX && peft_is_tied_head(m, module, suffix))
        return peft_new_head(m, module);
    if (base == SIZE_MAX && strcmp(suffix, ".weight") == 0)
        base = peft_find(m->base, module, ".in_proj_weight");   /* MultiheadAttention */
    if (base == SIZE_MAX) {
        ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: the base has no %s%s",
                     peft_of_adapter(m, whose)->name, module, suffix);
        return NULL;
    }
    return peft_update_check(m, base, whose) ? NULL : peft_update_new(m, base, NULL);
}

/* Set a full copy of u's tensor: embeddings and heads may have another number of rows. */
static void set_own(struct peft_updates *m, struct ckpt_lora_update *u, size_t own,
                    const char *module)
{
    const struct ckpt_shape *w = &ckpt_source_tensor(m->base, u->base)->shape;
    const struct ckpt_shape *s = &peft_of_adapter(m, own)->shape;
    bool embedding = u->base == peft_find_embedding(m->base);

    m->taken[own] = true;
    u->own = own;
    u->resized = embedding || u->as || peft_module_ends(module, "lm_head") ||
                 peft_module_ends(module, "embed_out");
    if (u->resized && embedding && !u->as && w->rank == 2 && s->rank == 2 &&
        w->dim[0] != s->dim[0])
        m->vocab = s->dim[0];
}

/*
 * Whether W is [in, out].  Shapes decide; for a square matrix the base's family does, or else
 * fan_in_fan_out, which peft saves as of the last module it processed.
 */
static bool orient(struct peft_updates *m, const struct ckpt_lora_update *u, const char *module)
{
    const struct ckpt_shape *w = &ckpt_source_tensor(m->base, u->base)->shape;
    int64_t in = peft_of_adapter(m, u->a)->shape.dim[1];
    int64_t out = peft_of_adapter(m, u->b)->shape.dim[0];
    bool plain = w->dim[0] == out && w->dim[1] == in;
    bool transposed = w->dim[0] == in && w->dim[1] == out;
    bool head = peft_module_ends(module, "lm_head") || peft_module_ends(module, "score");

    if (plain != transposed) {
        m->transposed |= transposed != m->config.fan_in_fan_out && !head;
        return transposed;
    }
    if (plain && peft_has_conv1d(m->base))
        return !head;
    m->square |= plain;
    return m->config.fan_in_fan_out;
}

static int take_magnitude(struct peft_updates *m, struct ckpt_lora_update *u, const char *name,
                          const char *tail)
{
    if (!m->config.dora)
        return 0;
    u->magnitude = peft_sibling(m, name, tail, ".lora_magnitude_vector");
    if (u->magnitude == NONE)
        u->magnitude = peft_sibling(m, name, tail, ".lora_magnitude_vector.weight");
    if (u->magnitude == NONE)
        return ckpt_fail(m->err, CKPT_EFORMAT,
                         "%s: use_dora, but its lora_magnitude_vector is absent",
                         name);
    m->taken[u->magnitude] = true;
    return 0;
}

/* Take B's bias with lora_bias, which is added to the base's bias. */
static int take_bias(struct peft_updates *m, const char *name, const char *tail,
                     const char *module, float scale)
{
    size_t i = peft_sibling(m, name, tail, ".lora_B.bias");
    size_t own = peft_sibling(m, name, tail, ".base_layer.bias");
    struct ckpt_lora_update *u;

    if (i == NONE)
        return 0;
    if (peft_find(m->base, module, ".bias") == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected",
                            "%s: the base has no %s.bias to add it to",
                            peft_of_adapter(m, i)->name, module);
    u = update_of(m, module, ".bias", i);
    if (!u)
        return ckpt_err_code(m->err);
    u->add = i;
    u->scale = scale;
    m->taken[i] = true;
    if (own != NONE)
        set_own(m, u, own, module);
    return 0;
}

static int check_pair(struct peft_updates *m, const struct ckpt_tensor *a, size_t b,
                      const char *partner)
{
    if (b == NONE)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: its partner %s is absent", a->name, partner);
    if (a->numel == 0 || a->shape.rank < 2)
        return ckpt_fail(m->err, CKPT_EFORMAT,
                         "%s: is empty or flat: saved from ZeRO-3 without gathering", a->name);
    return 0;
}

/*
 * Take factor A, its partner, and other tensors of the module.  The out_proj of a
 * MultiheadAttention is wrapped twice: peft applies its update twice, in training and in merging.
 */
static int take_pair(struct peft_updates *m, size_t a, const char *tail, const char *partner,
                     bool embedding)
{
    const struct ckpt_tensor *t = peft_of_adapter(m, a);
    size_t b = peft_sibling(m, t->name, tail, partner), own;
    char module[CKPT_MAX_NAME + 1];
    struct ckpt_lora_update *u;
    float scale;
    int rc;

    peft_module_of(module, t->name, tail);
    if ((rc = check_pair(m, t, b, partner)) != 0)
        return rc;
    u = update_of(m, module, ".weight", a);
    if (!u)
        return ckpt_err_code(m->err);
    u->a = a;
    u->b = b;
    m->taken[a] = m->taken[b] = true;
    own = peft_sibling(m, t->name, tail, ".base_layer.weight");
    if (own != NONE)
        set_own(m, u, own, module);
    if (ckpt_source_tensor(m->base, u->base)->shape.rank == 2 && t->shape.rank == 2 &&
        peft_of_adapter(m, b)->shape.rank == 2)
        u->transposed = embedding || orient(m, u, module);
    if ((rc = take_magnitude(m, u, t->name, tail)) != 0 ||
        (rc = peft_config_scale(&scale, &m->config, module, t->shape.dim[0], m->err)) != 0)
        return rc;
    u->scale = strstr(t->name, ".base_layer.out_proj.") ? 2 * scale : scale;
    return take_bias(m, t->name, tail, module, scale);
}

/* The integers that trainable_token_indices has for a module. */
static int token_rows(int64_t **row, size_t *n, struct peft_updates *m, const char *module,
                      const char *whose)
{
    const json_t *list = peft_config_tokens(&m->config, module);

    if (!list)
        return ckpt_fail(m->err, CKPT_EFORMAT, "%s: trainable_token_indices does not name %s",
                         whose, module);
    *n = json_array_size(list);
    *row = ckpt_arena_alloc(&m->arena, *n, sizeof **row);
    if (!*row)
        return ckpt_nomem(m->err, *n * sizeof **row);
    for (size_t k = 0; k < *n; k++) {
        if (!json_is_integer(json_array_get(list, k)))
            return ckpt_fail(m->err, CKPT_EFORMAT, "trainable_token_indices: no integer");
        (*row)[k] = json_integer_value(json_array_get(list, k));
    }
    return 0;
}

/* Rows of a tied head, which are the embedding's, or its own where others were trained. */
static int take_head_tokens(struct peft_updates *m, size_t i, size_t own, const char *module,
                            const int64_t *row, size_t n)
{
    struct ckpt_lora_update *u;
    bool took;
    int rc = peft_take_head_rows(&took, m, i, row, n);

    if (rc)
        return rc;
    if (took) {
        if (own != NONE)
            m->taken[own] = true;
        return 0;
    }
    u = peft_new_head(m, module);
    if (!u)
        return ckpt_err_code(m->err);
    m->taken[i] = true;
    u->rows = i;
    u->row = row;
    u->n_row = n;
    if (own != NONE)
        set_own(m, u, own, module);
    return 0;
}

/* Replace rows of an embedding, under all its names. */
static int take_tokens(struct peft_updates *m, size_t i, const char *tail)
{
    const struct ckpt_tensor *t = peft_of_adapter(m, i);
    size_t own = peft_sibling(m, t->name, ".trainable_tokens_delta", ".base_layer.weight");
    char module[CKPT_MAX_NAME + 1];
    struct ckpt_lora_update *u;
    size_t base, n = 0, root;
    int64_t *row = NULL;
    int rc;

    peft_module_of(module, t->name, tail);
    if ((rc = token_rows(&row, &n, m, module, t->name)) != 0)
        return rc;
    base = peft_find(m->base, module, ".weight");
    if (base == SIZE_MAX && peft_is_tied_head(m, module, ".weight"))
        return take_head_tokens(m, i, own, module, row, n);
    if (base == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: the base has no %s.weight",
                            t->name, module);
    m->taken[i] = true;
    root = ckpt_source_tensor(m->base, base)->alias_of;
    for (size_t k = 0; k < ckpt_source_count(m->base); k++) {
        if (k != base && ckpt_source_tensor(m->base, k)->alias_of != root)
            continue;
        u = m->of_base[k] == NONE ? peft_update_new(m, k, NULL) : &m->update[m->of_base[k]];
        if (!u)
            return ckpt_err_code(m->err);
        u->rows = i;
        u->row = row;
        u->n_row = n;
        if (own != NONE && u->own == NONE)
            set_own(m, u, own, module);
    }
    return 0;
}

/*
 * Take the copies that peft saves when the vocabulary grew: the trained one, under two names, and
 * the one from before.
 */
static int take_again(bool *took, struct peft_updates *m, size_t i)
{
    static const char saved[] = ".modules_to_save.", original[] = ".original_module.";
    const char *name = peft_of_adapter(m, i)->name;
    const char *at = strstr(name, saved), *old = strstr(name, original);
    char plain[CKPT_MAX_NAME + 64];
    bool same = true;
    size_t j;
    int rc;

    *took = false;
    if (!at && !old)
        return 0;
    snprintf(plain, sizeof plain, "%.*s.%s", (int)((at ? at : old) - name), name,
             at ? at + sizeof saved - 1 : old + sizeof original - 1);
    j = ckpt_source_find(m->adapter, plain);
    if (j == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected", "%s: there is no %s beside it",
                            name, plain);
    if (at && (rc = peft_same_bytes(&same, m->adapter, i, j, m->err)) != 0)
        return rc;
    if (!same)
        return ckpt_fail(m->err, CKPT_EMISMATCH, "%s: is not what %s is", name, plain);
    *took = m->taken[i] = true;
    return 0;
}

/* Take a tensor that is not a factor: a full copy of one of the base's. */
static int take_copy(struct peft_updates *m, size_t i)
{
    static const char *const partners[] = {".lora_B.weight", ".lora_embedding_B",
                                           ".lora_magnitude_vector",
                                           ".lora_magnitude_vector.weight", ".lora_B.bias"};
    static const struct { const char *tail, *suffix; } copies[] = {
        {".base_layer.weight", ".weight"}, {".base_layer.bias", ".bias"},
        {".weight", ".weight"}, {".bias", ".bias"}, {"", ""},
    };
    const char *name = peft_of_adapter(m, i)->name;
    struct ckpt_lora_update *u;
    char module[CKPT_MAX_NAME + 1];
    bool took;
    size_t k = 0;
    int rc;

    for (size_t p = 0; p < sizeof partners / sizeof partners[0]; p++)
        if (peft_ends(name, partners[p]))
            return ckpt_fail(m->err, CKPT_EFORMAT, "%s: belongs to no pair of factors", name);
    rc = take_again(&took, m, i);
    if (rc == 0 && !took)
        rc = peft_take_stack(&took, m, i);
    if (rc || took)
        return rc;
    while (copies[k].tail[0] && !peft_ends(name, copies[k].tail))
        k++;
    peft_module_of(module, name, copies[k].tail);
    rc = peft_take_head_copy(&took, m, i, module, copies[k].suffix);
    if (rc || took)
        return rc;
    u = update_of(m, module, copies[k].suffix, i);
    if (!u)
        return ckpt_err_code(m->err);
    set_own(m, u, i, module);
    return 0;
}

static int take_factors(struct peft_updates *m, size_t i)
{
    static const struct { const char *a, *b; bool embedding; } pairs[] = {
        {".lora_A.weight", ".lora_B.weight", false},
        {".lora_embedding_A", ".lora_embedding_B", true},
    };
    bool took;
    int rc;

    if (m->taken[i])
        return 0;
    rc = peft_take_experts(&took, m, i);
    if (rc || took)
        return rc;
    for (size_t k = 0; k < 2; k++)
        if (peft_ends(peft_of_adapter(m, i)->name, pairs[k].a))
            return take_pair(m, i, pairs[k].a, pairs[k].b, pairs[k].embedding);
    return 0;
}

static int take_all(struct peft_updates *m)
{
    static const char tokens[] = ".token_adapter.trainable_tokens_delta";
    size_t n = ckpt_source_count(m->adapter), before = m->n;
    int rc = 0;

    peft_skip_head(m);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_factors(m, i);
    for (size_t i = 0; rc == 0 && i < 2 * n; i++)
        if (!m->taken[i % n] && peft_ends(peft_of_adapter(m, i % n)->name, tokens) &&
            peft_is_head(m, i % n) == (i >= n))
            rc = take_tokens(m, i % n, tokens);
    for (size_t i = 0; rc == 0 && i < 2 * n; i++)
        if (!m->taken[i % n] && peft_is_head(m, i % n) == (i >= n))
            rc = take_copy(m, i % n);
    if (rc == 0 && m->n == before)
        rc = ckpt_fail(m->err, CKPT_EMISMATCH, "the adapter has no tensors");
    if (rc == 0 && m->transposed && m->square)
        rc = ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                       "fan_in_fan_out is %s, some shapes say otherwise, "
                       "and others are square", m->config.fan_in_fan_out ? "true" : "false");
    return rc;
}

/* -- all together ---------------------------------------------------------------------------- */

/* A weight below 0 subtracts a delta: there must be a delta that was added. */
static int check_weight(struct peft_updates *m, size_t before)
{
    for (size_t k = before; m->weight < 0 && k < m->n; k++) {
        const struct ckpt_lora_update *u = &m->update[k];

        if (u->own != NONE || u->magnitude != NONE || u->rows != NONE)
            return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                             "%s: the adapter %s, which is not taken away again",
                             ckpt_source_tensor(m->base, u->base)->name,
                             u->magnitude != NONE ? "gives its outputs other lengths"
                                                  : "puts values of its own in its place");
    }
    return 0;
}

static int take_adapter(struct peft_updates *m, const struct peft_adapter *a)
{
    size_t n_base = ckpt_source_count(m->base), before = m->n;
    int rc;

    m->adapter = a->source;
    m->weight = (float)a->weight;
    m->square = m->transposed = m->tied_copy = false;
    m->taken = ckpt_alloc(ckpt_source_count(m->adapter), sizeof *m->taken);
    if (!m->taken)
        return ckpt_nomem(m->err, ckpt_source_count(m->adapter));
    for (size_t i = 0; i < n_base; i++)
        m->of_base[i] = NONE;
    rc = peft_config_init(&m->config, json_object_get(ckpt_source_info(m->adapter),
                                                      "adapter_config"), m->err);
    if (rc == 0)
        rc = take_all(m);
    if (rc == 0)
        rc = peft_untie(m);
    if (rc == 0)
        rc = peft_check_rows(m);
    if (rc == 0)
        rc = check_weight(m, before);
    peft_config_release(&m->config);
    ckpt_free(m->taken);
    m->taken = NULL;
    return rc;
}

static int take_adapters(struct peft_updates *m, const struct peft_adapter *adapter, size_t n)
{
    size_t n_base = ckpt_source_count(m->base);
    int rc = 0;

    m->of_base = ckpt_alloc(n_base, sizeof *m->of_base);
    if (!m->of_base)
        return ckpt_nomem(m->err, n_base * sizeof *m->of_base);
    m->embedding = ckpt_source_find(m->base, "lm_head.weight") == SIZE_MAX &&
                   peft_is_tied(m->base) ? peft_find_embedding(m->base) : NONE;
    for (; rc == 0 && m->from < n; m->from++) {
        rc = take_adapter(m, &adapter[m->from]);
        if (rc && n > 1)
            ckpt_err_in(m->err, "%s", adapter[m->from].name);
    }
    return rc ? rc : peft_follow(m);
}

/* The base with its layers as the adapters use them: all of them in the same way. */
static int replicate(struct peft_updates *m, struct peft_layers *layers,
                     const struct peft_adapter *adapter, size_t n)
{
    struct ckpt_source *base = m->base;
    const json_t *map = NULL;

    for (size_t i = 0; i < n; i++) {
        const json_t *config = json_object_get(ckpt_source_info(adapter[i].source),
                                               "adapter_config");
        const json_t *own = json_object_get(config, "layer_replication");

        own = json_is_null(own) ? NULL : own;
        if (i > 0 && own != map && !(own && map && json_equal(own, map)))
            return ckpt_fail(m->err, CKPT_EMISMATCH, "%s: layer_replication is another than that "
                             "of %s", adapter[i].name, adapter[0].name);
        map = own;
    }
    m->base = NULL;
    return peft_replicate(&m->base, layers, base, map, &m->arena, m->err);
}

int peft_merge(struct ckpt_source **out, struct ckpt_source *base,
               const struct peft_adapter *adapter, size_t n, struct ckpt_err *err)
{
    struct ckpt_source *source[CKPT_LORA_MAX_ADAPTERS];
    struct peft_updates m = {.base = base, .err = err};
    struct peft_changes changes = {0};
    int rc = n <= CKPT_LORA_MAX_ADAPTERS
                 ? replicate(&m, &changes.layers, adapter, n)
                 : ckpt_fail(err, CKPT_ELIMIT, "%zu adapters, %d at most", n,
                             CKPT_LORA_MAX_ADAPTERS);

    *out = NULL;
    if (rc == 0)
        rc = take_adapters(&m, adapter, n);
    if (rc) {
        ckpt_source_close(m.base);
        for (size_t i = 0; i < n; i++)
            ckpt_source_close(adapter[i].source);
    } else {
        for (size_t i = 0; i < n; i++)
            source[i] = adapter[i].source;
        rc = ckpt_view_lora(out, m.base, source, n, m.update, m.n, err);
    }
    changes.untied = m.untied;
    changes.vocab = m.vocab;
    if (rc == 0 && (rc = peft_tell_config(out, &changes, err)) != 0) {
        ckpt_source_close(*out);
        *out = NULL;
    }
    ckpt_free(m.update);
    ckpt_free(m.of_base);
    ckpt_arena_release(&m.arena);
    return rc;
}
