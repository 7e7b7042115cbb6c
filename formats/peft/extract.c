/* peft/extract - see peft/extract.h.  Differences are found here, factors computed in
 * peft/factors.c. */
#include "formats/peft/extract.h"

#include <string.h>

#include "formats/peft/factors.h"
#include "formats/peft/names.h"
#include "formats/peft/tied.h"
#include "libckpt/convert.h"
#include "libckpt/lora/factors.h"
#include "libckpt/base/map.h"

#define NONE   SIZE_MAX
#define CHUNK  65536            /* elements compared at a time */
#define WIDEST 16
#define PREFIX "base_model.model."

enum fate { SAME, COPY, FACTORS };

/* Each tensor of full. */
struct tensor {
    size_t    base;             /* the base's tensor, or NONE */
    size_t    module;           /* index of the name's part before the last dot */
    enum fate fate;
    bool      linear, changed;
};

struct module {
    const char *name;
    size_t      weight;         /* its linear weight, or NONE */
    bool        save, adapt;
};

struct extract {
    struct ckpt_source             *base, *full;
    const struct peft_extract_opts *opts;
    struct tensor                  *tensor;
    struct module                  *module;
    size_t                          n_module;
    struct ckpt_map                *modules;
    struct ckpt_arena               arena;
    const char                     *lead;       /* prefix that the model's names have and the
                                                   file's lack */
    bool                            conv1d, biases;
    size_t                          tied;       /* a saved embedding and the head, or NONE */
    struct ckpt_err                *err;
};

static const struct ckpt_tensor *of_full(const struct extract *x, size_t i)
{
    return ckpt_source_tensor(x->full, i);
}

static bool is_float(const struct ckpt_tensor *t)
{
    return ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT && ckpt_convert_can(CKPT_F32, t->dtype);
}

static const json_t *config_of(const struct extract *x)
{
    const json_t *c = json_object_get(ckpt_source_info(x->full), "config");

    return json_is_object(c) ? c : json_object_get(ckpt_source_info(x->base), "config");
}

/* -- what differs ---------------------------------------------------------------------------- */

/* Compare values if dtypes differ, bits if they are the same. */
static int differs(bool *yes, struct extract *x, size_t i, size_t j)
{
    const struct ckpt_tensor *f = of_full(x, i), *b = ckpt_source_tensor(x->base, j);
    unsigned char *raw = ckpt_alloc_buffer(2 * CHUNK * WIDEST);
    float *v = ckpt_alloc_buffer(2 * CHUNK * sizeof *v);
    size_t width = ckpt_dtype_size(f->dtype);
    int rc = raw && v ? 0 : ckpt_nomem(x->err, 2 * CHUNK * WIDEST);

    *yes = false;
    if (rc == 0 && f->dtype != b->dtype && (!is_float(f) || !is_float(b)))
        rc = ckpt_fail(x->err, CKPT_EMISMATCH, "%s: is %s, in the base %s", f->name,
                       ckpt_dtype_name(f->dtype), ckpt_dtype_name(b->dtype));
    for (int64_t at = 0; rc == 0 && !*yes && at < f->numel; at += CHUNK) {
        int64_t n = f->numel - at < CHUNK ? f->numel - at : CHUNK;

        if (f->dtype == b->dtype) {
            rc = ckpt_source_read(x->full, i, at, n, raw, x->err);
            if (rc == 0)
                rc = ckpt_source_read(x->base, j, at, n, raw + CHUNK * WIDEST, x->err);
            *yes = rc == 0 && memcmp(raw, raw + CHUNK * WIDEST, (size_t)n * width) != 0;
        } else {
            rc = lora_read_as(v, CKPT_F32, x->full, i, at, n, x->err);
            if (rc == 0)
                rc = lora_read_as(v + CHUNK, CKPT_F32, x->base, j, at, n, x->err);
            *yes = rc == 0 && memcmp(v, v + CHUNK, (size_t)n * sizeof *v) != 0;
        }
    }
    ckpt_free(raw);
    ckpt_free(v);
    return rc;
}

static const char *last_part(const char *module)
{
    const char *dot = strrchr(module, '.');

    return dot ? dot + 1 : module;
}

static bool is_head(const char *module)
{
    static const char *const heads[] = {"score", "classifier", "qa_outputs", "output_projection"};

    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        if (strcmp(last_part(module), heads[i]) == 0)
            return true;
    return family_has_module(last_part(module), ROLE_HEAD_W);
}

/* Whether it is an embedding, a head, or is named like one: saved in full. */
static bool is_table(const char *module)
{
    const char *last = last_part(module);

    return is_head(module) || strstr(last, "embed") != NULL ||
           family_has_module(last, ROLE_TOKENS) || family_has_module(last, ROLE_POS) ||
           family_has_module(last, ROLE_REL_BIAS);
}

static int find_module(size_t *out, struct extract *x, const char *name)
{
    const char *dot = strrchr(name, '.');
    size_t n = dot ? (size_t)(dot - name) : 0;
    char *copy;

    if (!dot)
        return ckpt_fail(x->err, CKPT_EUNSUPPORTED, "%s: belongs to no module", name);
    *out = ckpt_map_get(x->modules, name, n);
    if (*out != CKPT_MAP_NONE)
        return 0;
    copy = ckpt_arena_strndup(&x->arena, name, n);
    if (!copy)
        return ckpt_nomem(x->err, n);
    *out = x->n_module;
    x->module[x->n_module++] = (struct module){.name = copy, .weight = NONE};
    return ckpt_map_add(x->modules, copy, n, *out, x->err);
}

/* The base's tensor of that name; a tied head of the base has none. */
static int find_base(struct extract *x, size_t i)
{
    const struct ckpt_tensor *t = of_full(x, i), *b;
    char sf[96], sb[96];
    size_t j = ckpt_source_find(x->base, t->name);
    bool table = is_table(x->module[x->tensor[i].module].name), same;

    x->tensor[i].base = j;
    if (j == SIZE_MAX && table && peft_is_tied(x->base))
        return 0;
    if (j == SIZE_MAX)
        return ckpt_fail_as(x->err, CKPT_EMISMATCH, "unexpected", "%s: the base has no such tensor",
                            t->name);
    b = ckpt_source_tensor(x->base, j);
    same = ckpt_shape_equal(&t->shape, &b->shape);
    if (same || (table && t->shape.rank == 2 && b->shape.rank == 2 &&
                 t->shape.dim[1] == b->shape.dim[1]))
        return 0;
    return ckpt_fail_as(x->err, CKPT_EMISMATCH, "shape", "%s: the base has %s, the model %s",
                        t->name, ckpt_shape_text(sb, sizeof sb, &b->shape),
                        ckpt_shape_text(sf, sizeof sf, &t->shape));
}

static int look_at(struct extract *x, size_t i)
{
    const struct ckpt_tensor *t = of_full(x, i);
    struct tensor *e = &x->tensor[i];
    struct module *m;
    size_t j;
    int rc;

    if ((rc = find_module(&e->module, x, t->name)) != 0 || (rc = find_base(x, i)) != 0)
        return rc;
    m = &x->module[e->module];
    j = e->base;
    e->linear = t->shape.rank == 2 && t->numel && is_float(t) && !is_table(m->name) &&
                strcmp(t->name + strlen(m->name), ".weight") == 0;
    if (e->linear)
        m->weight = i;
    e->changed = j == SIZE_MAX ||
                 !ckpt_shape_equal(&t->shape, &ckpt_source_tensor(x->base, j)->shape);
    return e->changed ? 0 : differs(&e->changed, x, i, j);
}

/* Check that every tensor of the base is in the model, was left out on purpose, or is tied to
 * one. */
static int check_all_there(struct extract *x)
{
    for (size_t j = 0; !x->opts->partial && j < ckpt_source_count(x->base); j++) {
        const struct ckpt_tensor *b = ckpt_source_tensor(x->base, j);

        if (ckpt_source_find(x->full, b->name) == SIZE_MAX && b->alias_of == j &&
            !(peft_module_ends(b->name, "lm_head.weight") && peft_is_tied(x->base)))
            return ckpt_fail_as(x->err, CKPT_EMISMATCH, "missing",
                                "%s: is in the base and not in the model", b->name);
    }
    return 0;
}

/* A module is adapted if its linear weight changed, and saved if anything else did. */
static void decide(struct extract *x)
{
    size_t n = ckpt_source_count(x->full);

    for (size_t i = 0; i < n; i++) {
        struct tensor *e = &x->tensor[i];
        struct module *m = &x->module[e->module];
        bool bias = strcmp(of_full(x, i)->name + strlen(m->name), ".bias") == 0 &&
                    m->weight != NONE && x->tensor[m->weight].changed;

        m->save |= e->changed && !e->linear && !bias;
        x->biases |= e->changed && bias;
    }
    for (size_t i = 0; i < n; i++) {
        struct tensor *e = &x->tensor[i];
        struct module *m = &x->module[e->module];

        if (m->save)
            e->fate = COPY;
        else if (e->linear && e->changed)
            e->fate = FACTORS;
        m->adapt |= e->fate == FACTORS;
    }
    x->tied = peft_is_tied(x->full) ? peft_find_embedding(x->full) : NONE;
    if (x->tied != NONE && x->tensor[x->tied].fate != COPY)
        x->tied = NONE;
    for (size_t i = 0; x->biases && i < n; i++) {
        struct module *m = &x->module[x->tensor[i].module];

        if (m->adapt && strcmp(of_full(x, i)->name + strlen(m->name), ".bias") == 0)
            x->tensor[i].fate = COPY;
    }
}

static int look(struct extract *x)
{
    size_t n = ckpt_source_count(x->full), found = 0;
    int rc;

    x->tensor = ckpt_alloc(n, sizeof *x->tensor);
    x->module = ckpt_alloc(n, sizeof *x->module);
    if (!x->tensor || !x->module)
        return ckpt_nomem(x->err, n * sizeof *x->tensor);
    rc = ckpt_map_new(&x->modules, n, x->err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = look_at(x, i);
    if (rc == 0)
        rc = check_all_there(x);
    if (rc)
        return rc;
    decide(x);
    for (size_t i = 0; i < n; i++)
        found += x->tensor[i].fate != SAME;
    return found ? 0 : ckpt_fail(x->err, CKPT_ENOTFOUND, "the model is its base: nothing differs");
}

/* -- names and settings of peft -------------------------------------------------------------- */

/* Whether some tensor's name begins like the family's names. */
static bool is_prefixed(const struct ckpt_source *src)
{
    const struct family *f;

    for (size_t k = 0; (f = family_at(k)) != NULL; k++)
        for (size_t i = 0; *f->prefix && i < ckpt_source_count(src); i++)
            if (strncmp(ckpt_source_tensor(src, i)->name, f->prefix, strlen(f->prefix)) == 0)
                return true;
    return false;
}

/* Files of a bare model lack the leading part that names have in the model with its head. */
static const char *leading_part(const struct extract *x)
{
    const json_t *c = config_of(x);
    const char *arch = json_string_value(json_array_get(json_object_get(c, "architectures"), 0));
    const char *type = json_string_value(json_object_get(c, "model_type"));
    const struct family *f = type ? family_find(type, NULL) : NULL;

    if (!arch || !type || !(strstr(arch, "CausalLM") || strstr(arch, "LMHead")) ||
        is_prefixed(x->full))
        return "";
    return f ? f->prefix : "model.";
}

/* A head is outside the leading part. */
static const char *lead_of(const struct extract *x, const char *module)
{
    return is_head(module) ? "" : x->lead;
}

static const char *task_of(const json_t *config)
{
    static const char *const task[][2] = {
        {"ForCausalLM", "CAUSAL_LM"}, {"LMHeadModel", "CAUSAL_LM"},
        {"ForConditionalGeneration", "SEQ_2_SEQ_LM"}, {"ForSequenceClassification", "SEQ_CLS"},
        {"ForTokenClassification", "TOKEN_CLS"}, {"ForQuestionAnswering", "QUESTION_ANS"},
    };
    const char *arch = json_string_value(json_array_get(json_object_get(config, "architectures"),
                                                        0));

    for (size_t i = 0; arch && i < sizeof task / sizeof task[0]; i++)
        if (strstr(arch, task[i][0]))
            return task[i][1];
    return NULL;
}

/* Whether every layer with that last name is adapted: then the last name suffices. */
static bool all_of_that_name(const struct extract *x, const char *last)
{
    for (size_t k = 0; k < x->n_module; k++)
        if (x->module[k].weight != NONE && !x->module[k].adapt &&
            peft_module_ends(x->module[k].name, last))
            return false;
    return !x->opts->partial;
}

static int add_name(json_t *list, struct ckpt_map *seen, const char *name, struct extract *x)
{
    if (ckpt_map_get(seen, name, strlen(name)) != CKPT_MAP_NONE)
        return 0;
    if (json_array_append_new(list, json_string(name)))
        return ckpt_nomem(x->err, strlen(name));
    return ckpt_map_add(seen, name, strlen(name), 0, x->err);
}

/* Fill target_modules and modules_to_save, and ranks of layers that are smaller than the rank. */
static int fill_lists(json_t *config, struct extract *x)
{
    json_t *target = json_array(), *save = json_array(), *rank = json_object();
    struct ckpt_map *seen = NULL;
    int rc = ckpt_map_new(&seen, x->n_module, x->err);

    for (size_t k = 0; rc == 0 && k < x->n_module; k++) {
        const struct module *m = &x->module[k];
        const char *last = last_part(m->name), *full;

        if (!m->save && !m->adapt)
            continue;
        full = ckpt_arena_printf(&x->arena, "%s%s", lead_of(x, m->name), m->name);
        if (!full)
            rc = ckpt_nomem(x->err, strlen(m->name));
        else if (m->save)
            rc = add_name(save, seen, full, x);
        else
            rc = add_name(target, seen, all_of_that_name(x, last) ? last : full, x);
        if (rc == 0 && m->adapt && peft_factors_rank(of_full(x, m->weight), x->opts->rank) <
                                       x->opts->rank)
            json_object_set_new(rank, full, json_integer((json_int_t)peft_factors_rank(
                                                of_full(x, m->weight), x->opts->rank)));
    }
    if (rc == 0 && (json_object_set(config, "target_modules", target) ||
                    json_object_set(config, "rank_pattern", rank) ||
                    json_object_set(config, "alpha_pattern", rank) ||
                    (json_array_size(save) && json_object_set(config, "modules_to_save", save))))
        rc = ckpt_nomem(x->err, 64);
    json_decref(target);
    json_decref(save);
    json_decref(rank);
    ckpt_map_free(seen);
    return rc;
}

/*
 * Settings that every version of peft knows, except ensure_weight_tying, without which the head
 * would not be updated; scale 1, so alpha equals the rank.
 */
static int make_info(json_t **info, struct extract *x)
{
    json_t *config = json_pack(
        "{s:n, s:s?, s:s, s:b, s:b, s:b, s:n, s:n, s:I, s:f, s:n, s:s, s:I, s:n, s:s?, s:b, s:b}",
        "auto_mapping", "base_model_name_or_path", x->opts->base_name, "bias",
        x->biases ? "lora_only" : "none", "fan_in_fan_out", x->conv1d, "inference_mode", true,
        "init_lora_weights", true, "layers_pattern", "layers_to_transform", "lora_alpha",
        (json_int_t)x->opts->rank, "lora_dropout", 0.0, "modules_to_save", "peft_type", "LORA",
        "r", (json_int_t)x->opts->rank, "revision", "task_type", task_of(config_of(x)), "use_dora",
        false, "use_rslora", false);
    int rc = config ? fill_lists(config, x) : ckpt_nomem(x->err, 64);

    if (rc == 0 && x->tied != NONE &&
        json_object_set_new(config, "ensure_weight_tying", json_true()))
        rc = ckpt_nomem(x->err, 64);
    *info = json_pack("{s:s, s:o}", "format", "peft", "adapter_config", config);
    return rc;
}

static int add_factors(struct peft_factors *f, struct extract *x, size_t i)
{
    const char *module = x->module[x->tensor[i].module].name;
    const char *name = ckpt_arena_printf(&x->arena, PREFIX "%s%s", lead_of(x, module), module);

    return name ? peft_factors_add(f, name, i, x->tensor[i].base, x->opts->rank, x->conv1d, x->err)
                : ckpt_nomem(x->err, strlen(module));
}

static int add_copy(struct peft_factors *f, struct extract *x, size_t i)
{
    const struct module *m = &x->module[x->tensor[i].module];
    const char *name = ckpt_arena_printf(&x->arena, PREFIX "%s%s%s%s", lead_of(x, m->name),
                                         m->name, m->adapt ? ".base_layer" : "",
                                         of_full(x, i)->name + strlen(m->name));

    return name ? peft_factors_copy(f, name, i, x->err) : ckpt_nomem(x->err, strlen(m->name));
}

/* Takes the sources once the adapter is a source, also if that fails. */
static int build(struct ckpt_source **out, struct extract *x)
{
    struct peft_factors *f = NULL;
    json_t *info = NULL;
    int rc = make_info(&info, x);

    if (rc == 0)
        rc = peft_factors_new(&f, x->base, x->full, x->err);
    for (size_t i = 0; rc == 0 && i < ckpt_source_count(x->full); i++)
        if (x->tensor[i].fate == FACTORS)
            rc = add_factors(f, x, i);
        else if (x->tensor[i].fate == COPY)
            rc = add_copy(f, x, i);
    if (rc == 0 && x->tied != NONE && ckpt_source_find(x->full, "lm_head.weight") == NONE)
        rc = peft_factors_copy(f, PREFIX "lm_head.weight", x->tied, x->err);
    if (rc) {
        peft_factors_free(f);
        json_decref(info);
        return rc;
    }
    x->base = x->full = NULL;
    return peft_factors_source(out, f, info, x->err);
}

int peft_extract(struct ckpt_source **out, struct ckpt_source *base, struct ckpt_source *full,
                 const struct peft_extract_opts *opts, struct ckpt_err *err)
{
    struct extract x = {.base = base, .full = full, .opts = opts, .tied = NONE, .err = err};
    int rc;

    *out = NULL;
    x.conv1d = peft_has_conv1d(base);
    x.lead = leading_part(&x);
    rc = look(&x);
    if (rc == 0)
        rc = build(out, &x);
    ckpt_source_close(x.base);
    ckpt_source_close(x.full);
    ckpt_map_free(x.modules);
    ckpt_free(x.tensor);
    ckpt_free(x.module);
    ckpt_arena_release(&x.arena);
    return rc;
}
