/* params - see params.h. */
#include "trainer/model/params.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/map.h"
#include "libckpt/tensor.h"
#include "formats/families/arch.h"
#include "formats/families/family.h"
#include "trainer/model/lora.h"

static size_t count(const struct arch *arch)
{
    struct family_name part[ROLE_COUNT];
    size_t n = 0;

    for (int64_t l = -1; l <= arch->num_hidden_layers; l++)
        for (size_t i = family_parts(part, arch, l); i-- > 0;)
            n += role_is_expert(part[i].role) ? (size_t)arch->num_experts : 1;
    return n;
}

/* A list in the making. */
struct build {
    struct params     *p;
    const struct arch *arch;
    const struct lora *lora;
    size_t             module;      /* first parameter of the module in work; SIZE_MAX: none */
};

/* The path of a parameter's module: its name without the last part. */
static size_t module_length(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot ? (size_t)(dot - name) : strlen(name);
}

/* Give item[n] its layer, and count it. */
static int place(struct build *b, struct param *q, int layer, struct ckpt_err *err)
{
    struct params *p = b->p;

    if (!q->name || !ckpt_shape_numel(&q->numel, &q->shape))
        return ckpt_nomem(err, CKPT_MAX_NAME);
    q->layer = layer;
    p->numel += q->numel;
    if (ckpt_map_add(p->by_name, q->name, strlen(q->name), p->n, err))
        return ckpt_err_in(err, "parameter %s", q->name);
    p->n++;
    return 0;
}

static int append_factor(struct build *b, const struct param *of, enum param_kind kind,
                         const char *tail, struct ckpt_shape shape, float scale,
                         struct ckpt_err *err)
{
    struct param *q = &b->p->item[b->p->n];

    *q = (struct param){.shape = shape, .decay = true, .trainable = true, .role = of->role,
                        .kind = kind, .scale = scale};
    q->name = ckpt_arena_printf(&b->p->arena, "base_model.model.%.*s.%s",
                                (int)module_length(of->name), of->name, tail);
    return place(b, q, of->layer, err);
}

/* The factors of a change, in the order of PEFT's modules. */
static int append_factors(struct build *b, const struct param *of, const struct lora_delta *c,
                          enum lora_module kind, struct ckpt_err *err)
{
    bool embedding = kind == LORA_EMBEDDING;
    bool transposed = !embedding && b->arch->weight_order == ARCH_IN_OUT &&
                  role_is_transposed((enum role)of->role);
    int64_t rows = of->shape.dim[0], cols = of->shape.dim[1];
    int64_t in = embedding || transposed ? rows : cols, out = embedding || transposed ? cols : rows;
    int rc;

    if ((rc = append_factor(b, of, PARAM_LORA_A, embedding ? "lora_embedding_A" : "lora_A.weight",
                      ckpt_shape_2d(c->rank, in), c->scale, err)) != 0 ||
        (rc = append_factor(b, of, PARAM_LORA_B, embedding ? "lora_embedding_B" : "lora_B.weight",
                      ckpt_shape_2d(out, c->rank), c->scale, err)) != 0)
        return rc;
    return c->magnitude ? append_factor(b, of, PARAM_MAGNITUDE, "lora_magnitude_vector",
                                        ckpt_shape_1d(out), 0, err) : 0;
}

static enum lora_module module_kind(enum role role)
{
    return role == ROLE_TOKENS     ? LORA_EMBEDDING
           : role == ROLE_HEAD_W   ? LORA_HEAD
           : role_is_linear(role)  ? LORA_LINEAR
                                   : LORA_OTHER;
}

/* Ids of the vocabulary, each once: which of two rows an id has nobody could say. */
static int check_ids(const json_t *list, int64_t vocab, struct ckpt_err *err)
{
    bool *seen = ckpt_alloc((size_t)vocab, sizeof *seen);
    int rc = 0;

    if (!seen)
        return ckpt_nomem(err, (size_t)vocab);
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        json_int_t id = json_integer_value(entry);

        if (!json_is_integer(entry) || id < 0 || id >= vocab)
            rc = ckpt_fail(err, CKPT_ECONFIG, "trainable_token_indices: entry %zu is no id from 0 "
                           "to %lld", i, (long long)vocab - 1);
        else if (seen[id])
            rc = ckpt_fail(err, CKPT_ECONFIG, "trainable_token_indices: %lld is named twice",
                           (long long)id);
        else
            seen[id] = true;
    }
    ckpt_free(seen);
    return rc;
}

/* Rows of the embedding that are trained by themselves. */
static int append_tokens(struct build *b, const struct param *of, const json_t *list,
                         struct ckpt_err *err)
{
    int rc = check_ids(list, b->arch->vocab_size, err);

    if (rc)
        return rc;
    return append_factor(b, of, PARAM_TOKENS, "token_adapter.trainable_tokens_delta",
                         ckpt_shape_2d((int64_t)json_array_size(list), of->shape.dim[1]), 0, err);
}

/* The module in work is whole: what an adapter does to it. */
static int end_module(struct build *b, struct ckpt_err *err)
{
    struct params *p = b->p;
    size_t first = b->module, end = p->n;
    const struct param *of = &p->item[first];
    enum lora_module kind;
    struct lora_delta c;
    char module[CKPT_MAX_NAME + 1];
    int rc;

    b->module = SIZE_MAX;
    if (!b->lora || first == SIZE_MAX)
        return 0;
    snprintf(module, sizeof module, "%.*s", (int)module_length(of->name), of->name);
    kind = module_kind((enum role)of->role);
    rc = lora_delta(&c, b->lora, module, kind, err);
    if (rc)
        return rc;
    for (size_t i = first; i < end; i++) {
        struct param *q = &p->item[i];
        bool bias = strcmp(q->name + module_length(q->name), ".bias") == 0;

        q->changed = c.rank > 0;
        q->stored = c.rank > 0 && lora_stores_base(b->lora, module);
        q->saved = lora_saves(b->lora, q->name);
        q->trainable = q->saved ||
                       (bias && lora_bias(b->lora) == LORA_BIAS_ALL) ||
                       (bias && lora_bias(b->lora) == LORA_BIAS_TARGETS && c.rank > 0);
    }
    if (c.rank && (rc = append_factors(b, of, &c, kind, err)) != 0)
        return rc;
    if (kind == LORA_EMBEDDING && lora_tokens(b->lora, module)) {
        if (c.rank || of->trainable)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "trainable_token_indices: %s is trained "
                             "otherwise as well", module);
        return append_tokens(b, of, lora_tokens(b->lora, module), err);
    }
    return 0;
}

static int append_one(struct build *b, const struct family_name *name, int layer, int64_t expert,
                      struct ckpt_err *err)
{
    struct params *p = b->p;
    const struct param *before = b->module == SIZE_MAX ? NULL : &p->item[b->module];
    struct family_place at = {name->role, layer - 1 - arch_stack_first(b->arch, layer - 1),
                              expert};
    char text[CKPT_MAX_NAME + 1];
    struct param *q;
    int rc;

    family_spell(text, sizeof text, name->pattern, p->prefix, &at);
    if (before && (before->layer != layer || module_length(before->name) != module_length(text) ||
                   strncmp(before->name, text, module_length(text)) != 0) &&
        (rc = end_module(b, err)) != 0)
        return rc;
    if (b->module == SIZE_MAX)
        b->module = p->n;
    assert(p->item);
    q = &p->item[p->n];
    *q = (struct param){.name = ckpt_arena_strndup(&p->arena, text, strlen(text)),
                        .shape = role_shape(b->arch, name->role),
                        .decay = role_decays(name->role), .trainable = true,
                        .group = role_decays(name->role) ? 0 : 1,
                        .written = role_overwrites_grad(b->arch, name->role),
                        .role = (int)name->role, .expert = expert};
    return place(b, q, layer, err);
}

/* Append the parameters of a layer; experts one after another. */
static int append(struct build *b, int layer, struct ckpt_err *err)
{
    struct family_name part[ROLE_COUNT];
    size_t n = family_parts(part, b->arch, layer - 1);
    int rc = 0;

    for (size_t i = 0, end; i < n; i = end) {
        bool expert = role_is_expert(part[i].role);

        for (end = i + 1; expert && end < n && role_is_expert(part[end].role);)
            end++;
        for (int64_t e = 0; e < (expert ? b->arch->num_experts : 1); e++)
            for (size_t k = i; rc == 0 && k < end; k++)
                rc = append_one(b, &part[k], layer, e, err);
    }
    return rc;
}

int64_t params_room(const struct params *p, int64_t numel)
{
    int64_t ranks = p->ranks > 1 ? p->ranks : 1;

    return (numel + ranks - 1) / ranks * ranks;
}

void params_divide(struct params *p, int ranks)
{
    p->ranks = ranks;
    for (int u = 0; u < p->n_layers; u++)
        p->layer_numel[u] = p->layer_grad[u] = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct param *q = &p->item[i];
        int64_t room = params_room(p, q->numel);

        q->offset = p->layer_numel[q->layer];
        p->layer_numel[q->layer] += room;
        q->grad_offset = q->trainable ? p->layer_grad[q->layer] : -1;
        p->layer_grad[q->layer] += q->trainable ? room : 0;
    }
}

static int append_all(struct build *b, struct ckpt_err *err)
{
    struct params *p = b->p;
    int rc = 0;

    for (int layer = 0; rc == 0 && layer < p->n_layers; layer++)
        rc = append(b, layer, err);
    rc = rc ? rc : end_module(b, err);
    if (rc)
        return rc;
    params_divide(p, 1);
    for (size_t i = 0; i < p->n; i++)
        p->grad_numel += p->item[i].trainable ? p->item[i].numel : 0;
    if (p->grad_numel > 0)
        return 0;
    ckpt_fail(err, CKPT_ECONFIG, "the adapter changes no module of this model: target_modules "
              "names none of its");
    return ckpt_err_hint(err, "all-linear takes the linear modules of any model");
}

int params_build(struct params *p, const struct arch *arch, const struct lora *lora,
                 struct ckpt_err *err)
{
    size_t n = count(arch) * (lora ? PARAM_KINDS : 1);
    struct build b = {.p = p, .arch = arch, .lora = lora, .module = SIZE_MAX};
    int rc;

    memset(p, 0, sizeof *p);
    p->family = arch->family;
    p->prefix = arch->family->prefix;
    p->adapted = lora != NULL;
    p->n_layers = (int)arch->num_hidden_layers + 2;
    p->item = ckpt_arena_alloc(&p->arena, n, sizeof *p->item);
    p->layer_numel = ckpt_arena_alloc(&p->arena, (size_t)p->n_layers, sizeof *p->layer_numel);
    p->layer_grad = ckpt_arena_alloc(&p->arena, (size_t)p->n_layers, sizeof *p->layer_grad);
    if (!p->item || !p->layer_numel || !p->layer_grad)
        rc = ckpt_nomem(err, n * sizeof *p->item);
    else
        rc = ckpt_map_new(&p->by_name, n, err);
    rc = rc ? rc : append_all(&b, err);
    if (rc)
        params_release(p);
    return rc;
}

/* Where ".default" goes in a wrapped model's names. */
static const char *tail_of(const struct param *q)
{
    switch (q->kind) {
    case PARAM_LORA_A:
    case PARAM_LORA_B:
        return strstr(q->name, ".lora_embedding_") ? "" : ".weight";
    default:
        return "";
    }
}

bool params_is_saved(const struct params *p, size_t i)
{
    return !p->adapted || p->item[i].trainable || p->item[i].stored;
}

bool params_is_hidden(const struct param *p)
{
    static const int outer[] = {ROLE_TOKENS, ROLE_POS, ROLE_TOKEN_TYPE, ROLE_REL_BIAS, ROLE_HEAD_W};
    bool matrix = p->shape.rank == 2 && p->kind != PARAM_TOKENS && p->kind != PARAM_MAGNITUDE;

    for (size_t i = 0; i < sizeof outer / sizeof outer[0]; i++)
        matrix &= p->role != outer[i];
    return matrix;
}

bool params_stacked(struct params_stacked *out, const struct params *p, size_t i)
{
    const struct param *q = &p->item[i];
    int64_t rows = q->shape.dim[0];
    bool down = q->role == ROLE_EXPERT_DOWN;

    if (p->adapted || !role_is_expert((enum role)q->role))
        return false;
    *out = (struct params_stacked){.matrix = q->expert, .height = down ? rows : 2 * rows,
                                   .above = q->role == ROLE_EXPERT_UP ? rows : 0, .down = down};
    return true;
}

const char *params_saved_name(char *dst, size_t size, const struct params *p, size_t i, bool live)
{
    const struct param *q = &p->item[i];
    size_t n = module_length(q->name), k = strlen(q->name) - strlen(tail_of(q));

    if (!p->adapted)
        snprintf(dst, size, "%s", q->name);
    else if (q->kind == PARAM_BASE && q->changed)
        snprintf(dst, size, "base_model.model.%.*s.base_layer%s", (int)n, q->name, q->name + n);
    else if (q->kind == PARAM_BASE && live && q->saved)
        snprintf(dst, size, "base_model.model.%.*s.modules_to_save.default%s", (int)n, q->name,
                 q->name + n);
    else if (q->kind == PARAM_BASE)
        snprintf(dst, size, "base_model.model.%s", q->name);
    else if (live && q->kind == PARAM_MAGNITUDE)
        snprintf(dst, size, "%s.default.weight", q->name);
    else if (live)
        snprintf(dst, size, "%.*s.default%s", (int)k, q->name, tail_of(q));
    else
        snprintf(dst, size, "%s", q->name);
    return dst;
}

const json_t *params_token_list(const struct params *p, const struct lora *lora)
{
    char module[CKPT_MAX_NAME + 1];

    for (size_t i = 0; lora && i < p->n; i++)
        if (p->item[i].kind == PARAM_BASE && p->item[i].role == ROLE_TOKENS) {
            snprintf(module, sizeof module, "%.*s", (int)module_length(p->item[i].name),
                     p->item[i].name);
            return lora_tokens(lora, module);
        }
    return NULL;
}

static size_t exactly(const struct params *p, const char *name, size_t n)
{
    if (p->by_name)
        return ckpt_map_get(p->by_name, name, n);
    for (size_t i = 0; i < p->n; i++)       /* a list made by hand, in tests */
        if (strncmp(p->item[i].name, name, n) == 0 && p->item[i].name[n] == '\0')
            return i;
    return SIZE_MAX;
}

size_t params_find(const struct params *p, const char *name)
{
    char with[4096];
    size_t k = strlen(p->prefix ? p->prefix : ""), n = strlen(name);
    size_t i = exactly(p, name, n);

    if (i != SIZE_MAX || k == 0 || n + k >= sizeof with)
        return i;
    memcpy(with, p->prefix, k);
    memcpy(with + k, name, n + 1);
    return exactly(p, with, n + k);
}

size_t params_find_older(const struct params *p, const char *name)
{
    char now[CKPT_MAX_NAME + 1];
    size_t n = strlen(name);

    for (const struct family_older_name *o = p->family ? p->family->older : NULL; o && o->tail;
         o++) {
        size_t k = strlen(o->tail);

        if (n < k || strcmp(name + n - k, o->tail) != 0 || n - k + strlen(o->now) >= sizeof now)
            continue;
        snprintf(now, sizeof now, "%.*s%s", (int)(n - k), name, o->now);
        return params_find(p, now);
    }
    return SIZE_MAX;
}

bool params_spare(const struct params *p, const char *name)
{
    return p->family && family_is_spare(p->family, name);
}

void params_release(struct params *p)
{
    ckpt_map_free(p->by_name);
    ckpt_arena_release(&p->arena);
    memset(p, 0, sizeof *p);
}
