/* peft/experts - see peft/experts.h. */
#include "formats/peft/experts.h"

#include <stdio.h>
#include <string.h>

#include "formats/peft/names.h"

#define MAX_EXPERTS 65536
#define TAIL_A      ".lora_A.weight"
#define TAIL_B      ".lora_B.weight"

/* Layouts on disk of a parameter that is not a tensor of its own: one matrix per expert and
 * part. */
static const struct layout { const char *param, *part[2]; } layouts[] = {
    {"gate_up_proj", {"gate_proj", "up_proj"}}, {"gate_up_proj", {"w1", "w3"}},
    {"gate_up_proj", {"fc1", "fc3"}},
    {"up_proj", {"up_proj", NULL}},
    {"down_proj", {"down_proj", NULL}}, {"down_proj", {"w2", NULL}}, {"down_proj", {"fc2", NULL}},
};

/* A pair of factors, and the parameter it may belong to. */
struct stack {
    const char          *module, *param;
    size_t               a, b;
    int64_t              in, out, columns;      /* of A, B, and B's columns: r E */
    size_t               whole;                 /* the parameter as one tensor, or NONE */
    const struct layout *layout;                /* else this */
    int64_t              experts;
    bool                 transposed;                /* [experts, in, out] */
};

/* Families that store an expert's matrix as [in, out]. */
static bool keeps_transposed(const struct ckpt_source *base)
{
    static const char *const types[] = {"gpt_oss", "openai_privacy_filter", "aria", "aria_text",
                                        "llama4", "llama4_text"};
    const char *type = peft_model_type(base);

    for (size_t i = 0; type && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(type, types[i]) == 0)
            return true;
    return false;
}

static size_t find_part(const struct ckpt_source *base, const struct stack *s, int64_t expert,
                        const char *part)
{
    char name[CKPT_MAX_NAME + 64];

    snprintf(name, sizeof name, "%s.%lld.%s", s->module, (long long)expert, part);
    return peft_find(base, name, ".weight");
}

/* Try one tensor [E, ., .], or [out, in] for a parameter without experts. */
static bool fits_whole(struct stack *s, const struct ckpt_source *base, size_t i)
{
    const struct ckpt_shape *w = &ckpt_source_tensor(base, i)->shape;
    int last = w->rank - 1;
    bool plain, transposed;

    if (last < 1 || last > 2)
        return false;
    s->whole = i;
    s->experts = last == 2 ? w->dim[0] : 1;
    plain = w->dim[last - 1] == s->out && w->dim[last] == s->in;
    transposed = last == 2 && w->dim[1] == s->in && w->dim[2] == s->out;
    s->transposed = transposed && (!plain || keeps_transposed(base));
    return plain || transposed;
}

static bool fits_parts(struct stack *s, const struct ckpt_source *base, const struct layout *l)
{
    size_t i = find_part(base, s, 0, l->part[0]);
    const struct ckpt_shape *w = i == SIZE_MAX ? NULL : &ckpt_source_tensor(base, i)->shape;

    if (!w || w->rank != 2 || w->dim[1] != s->in || w->dim[0] * (l->part[1] ? 2 : 1) != s->out)
        return false;
    s->layout = l;
    for (s->experts = 1; s->experts < MAX_EXPERTS; s->experts++)
        if (find_part(base, s, s->experts, l->part[0]) == SIZE_MAX)
            break;
    return true;
}

/* Whether the base has that parameter, in any layout and shape. */
static bool has_parameter(const struct stack *s, const struct ckpt_source *base)
{
    char suffix[CKPT_MAX_NAME + 64];

    snprintf(suffix, sizeof suffix, ".%s", s->param);
    if (peft_find(base, s->module, suffix) != SIZE_MAX)
        return true;
    for (size_t k = 0; k < sizeof layouts / sizeof layouts[0]; k++)
        if (strcmp(layouts[k].param, s->param) == 0 &&
            find_part(base, s, 0, layouts[k].part[0]) != SIZE_MAX)
            return true;
    return false;
}

/* Whether the base has that parameter in a shape that matches the factors. */
static bool fits(struct stack *s, const struct ckpt_source *base)
{
    char suffix[CKPT_MAX_NAME + 64];
    size_t whole;

    s->whole = PEFT_NONE;
    s->layout = NULL;
    s->transposed = false;
    snprintf(suffix, sizeof suffix, ".%s", s->param);
    whole = peft_find(base, s->module, suffix);
    if (whole != SIZE_MAX)
        return fits_whole(s, base, whole) && s->columns % s->experts == 0;
    for (size_t k = 0; k < sizeof layouts / sizeof layouts[0]; k++)
        if (strcmp(layouts[k].param, s->param) == 0 && fits_parts(s, base, &layouts[k]))
            return s->columns % s->experts == 0;
    return false;
}

/* Whether `target` names a parameter of module; param is which. */
static bool names_parameter(const char *target, const char *module, const char **param)
{
    const char *dot = strrchr(target, '.');
    size_t n = dot ? (size_t)(dot - target) : 0, k = strlen(module);

    *param = dot ? dot + 1 : target;
    return !dot || (k >= n && strncmp(module + k - n, target, n) == 0 &&
                    (k == n || module[k - n - 1] == '.'));
}

/*
 * Choose the module's parameter that the factors belong to.  Shapes decide; if two match, the
 * file does not say which.  *n counts those that are named, *fit those that match.  A target
 * without a module, as PEFT's all-linear makes for experts, names nothing in modules that have
 * no such parameter.
 */
static void choose(struct stack *s, size_t *n, size_t *fit, const struct peft_updates *m)
{
    const json_t *targets = json_object_get(m->config.json, "target_parameters");
    struct stack best = *s;

    *n = *fit = 0;
    for (size_t i = 0; i < json_array_size(targets); i++) {
        const char *target = json_string_value(json_array_get(targets, i));

        if (!target || !names_parameter(target, s->module, &s->param) ||
            strcmp(s->param, "weight") == 0 || (s->param == target && !has_parameter(s, m->base)))
            continue;
        ++*n;
        if (fits(s, m->base) && (*fit == 0 || strcmp(s->param, best.param) != 0) && ++*fit == 1)
            best = *s;
    }
    if (*fit)
        *s = best;
}

static int add_update(struct peft_updates *m, const struct stack *s, size_t base, int64_t expert,
                      int64_t part, float scale)
{
    struct ckpt_lora_update *u;
    int rc;

    if (s->whole == PEFT_NONE && (rc = peft_update_check(m, base, s->a)) != 0)
        return rc;
    u = peft_update_new(m, base, NULL);
    if (!u)
        return ckpt_err_code(m->err);
    u->a = s->a;
    u->b = s->b;
    u->scale = scale;
    u->transposed = s->transposed;
    u->part = (struct ckpt_lora_part){
        .rank = s->columns / s->experts, .a_row = expert * (s->columns / s->experts),
        .b_row = s->layout && s->layout->part[1] ? part * (s->out / 2) : 0, .b_col = expert,
        .b_step = s->experts,
    };
    if (s->whole != PEFT_NONE) {
        u->part.n_row = s->transposed ? s->in : s->out;
        u->part.n_col = s->transposed ? s->out : s->in;
        u->part.first = expert * s->in * s->out;
    }
    return 0;
}

static int add_experts(struct peft_updates *m, const struct stack *s)
{
    char name[2 * CKPT_MAX_NAME + 64];
    float scale;
    int rc;

    snprintf(name, sizeof name, "%s.%s", s->module, s->param);
    rc = peft_config_scale(&scale, &m->config, name, s->columns / s->experts, m->err);
    if (rc == 0 && s->whole != PEFT_NONE)
        rc = peft_update_check(m, s->whole, s->a);
    for (int64_t e = 0; rc == 0 && e < s->experts; e++)
        for (int64_t p = 0; rc == 0 && p < (s->layout && s->layout->part[1] ? 2 : 1); p++) {
            size_t base = s->layout ? find_part(m->base, s, e, s->layout->part[p]) : s->whole;

            rc = base == SIZE_MAX
                     ? ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected",
                                    "%s: the base has no %s of expert %lld", name,
                                    s->layout->part[p], (long long)e)
                     : add_update(m, s, base, e, p, scale);
        }
    return rc;
}

int peft_take_experts(bool *took, struct peft_updates *m, size_t a)
{
    const struct ckpt_tensor *ta = peft_of_adapter(m, a), *tb;
    char module[CKPT_MAX_NAME + 1], sa[96], sb[96];
    struct stack s = {.module = module, .a = a};
    size_t named, fit;

    *took = false;
    if (json_array_size(json_object_get(m->config.json, "target_parameters")) == 0 ||
        !peft_ends(ta->name, TAIL_A))
        return 0;
    s.b = peft_sibling(m, ta->name, TAIL_A, TAIL_B);
    peft_module_of(module, ta->name, TAIL_A);
    if (s.b == PEFT_NONE || ta->shape.rank != 2 || ta->numel == 0)
        return 0;                       /* the plain case has its own message */
    tb = peft_of_adapter(m, s.b);
    s.in = ta->shape.dim[1];
    s.out = tb->shape.dim[0];
    s.columns = ta->shape.dim[0];
    choose(&s, &named, &fit, m);
    if (named == 0)
        return 0;
    *took = m->taken[a] = m->taken[s.b] = true;
    if (fit == 1)
        return add_experts(m, &s);
    if (fit > 1)
        return ckpt_fail(m->err, CKPT_EUNSUPPORTED,
                         "%s: fits %zu of target_parameters, which of them is not said", ta->name,
                         fit);
    return ckpt_fail_as(m->err, CKPT_EMISMATCH, "shape",
                        "%s: no parameter of target_parameters in the base's %s goes with B %s "
                        "and A %s", ta->name, module,
                        ckpt_shape_text(sb, sizeof sb, &tb->shape),
                        ckpt_shape_text(sa, sizeof sa, &ta->shape));
}

static int add_copy(struct peft_updates *m, const struct stack *s, size_t i, int64_t expert,
                    int64_t part)
{
    size_t base = find_part(m->base, s, expert, s->layout->part[part]);
    struct ckpt_lora_update *u;
    int rc;

    if (base == SIZE_MAX)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "unexpected",
                            "%s: the base has no %s of expert %lld", peft_of_adapter(m, i)->name,
                            s->layout->part[part], (long long)expert);
    if ((rc = peft_update_check(m, base, i)) != 0)
        return rc;
    u = peft_update_new(m, base, NULL);
    if (!u)
        return ckpt_err_code(m->err);
    u->own = i;
    u->stacked = true;
    u->own_first = (expert * s->out + part * (s->out / 2)) * s->in;
    return 0;
}

int peft_take_stack(bool *took, struct peft_updates *m, size_t i)
{
    const struct ckpt_tensor *t = peft_of_adapter(m, i);
    const char *dot = strrchr(t->name, '.');
    char module[CKPT_MAX_NAME + 1], shape[96];
    struct stack s = {.module = module};
    bool fit = false;
    int rc = 0;

    *took = false;
    if (!dot || t->shape.rank != 3)
        return 0;
    s.param = dot + 1;
    peft_module_of(module, t->name, dot);
    s.out = t->shape.dim[1];
    s.in = t->shape.dim[2];
    for (size_t k = 0; !fit && k < sizeof layouts / sizeof layouts[0]; k++)
        if (strcmp(layouts[k].param, s.param) == 0 &&
            find_part(m->base, &s, 0, layouts[k].part[0]) != SIZE_MAX) {
            *took = true;
            fit = fits_parts(&s, m->base, &layouts[k]) && s.experts == t->shape.dim[0];
        }
    if (!*took)
        return 0;
    m->taken[i] = true;
    if (!fit)
        return ckpt_fail_as(m->err, CKPT_EMISMATCH, "shape",
                            "%s: %s is not the shape of the base's experts", t->name,
                            ckpt_shape_text(shape, sizeof shape, &t->shape));
    for (int64_t e = 0; rc == 0 && e < s.experts; e++)
        for (int64_t p = 0; rc == 0 && p < (s.layout->part[1] ? 2 : 1); p++)
            rc = add_copy(m, &s, i, e, p);
    return rc;
}
