/* deepspeed/stage0 - see deepspeed/stage0.h. */
#include "formats/deepspeed/stage0.h"

#include <string.h>

#include "formats/deepspeed/experts.h"
#include "formats/deepspeed/pipe.h"
#include "formats/deepspeed/module.h"
#include "libckpt/convert.h"
#include "libckpt/err.h"
#include "libckpt/log.h"

#define SAMPLE 2048             /* elements compared at each end of a parameter */

/* One entry of the optimizer. */
struct entry {
    const struct param         *param;  /* set once it is known */
    const struct value         *state;  /* dictionary of moments */
    const struct value_tensor  *master; /* f32 copy, or NULL */
    const struct torch_archive *archive;        /* of master and state */
    const char                 *shape;  /* as text: entries and parameters are matched by it */
    size_t                      group;
    bool                        flat;   /* its moments are windows of the group's, from here on: */
    int64_t                     at;
};

/* One parameter of `module`, or of an expert. */
struct param {
    const char                 *name, *shape;
    const struct value_tensor  *t;
    const struct torch_archive *archive;
    size_t                      part;
    int64_t                     numel;
    bool                        taken;
};

/* Parameters and entries of one shape. */
struct class {
    size_t *param;                      /* [n_param] indices of its parameters */
    size_t  n_param;
    size_t  n_entry, group;             /* number and group of its entries */
    size_t  next;                       /* parameters before this one are assigned */
    bool    mixed;                      /* its entries belong to several groups */
};

struct match {
    struct ckpt_arena       arena;
    const struct ds_files  *f;
    struct param    *param;
    struct entry    *entry;
    struct class    *class;
    size_t           n_param, n_entry, cap_entry, n_class;
    struct ckpt_map *by_shape;          /* shape -> index of a class */
};

/*
 * A rank's optimizer.  Part 0 has the parameters of `module`; with experts, member i of an
 * expert-parallel group has an optimizer whose part is i + 1.
 */
struct optimizer {
    const struct value         *outer, *inner;  /* DeepSpeed's wrapper and torch's optimizer, or
                                                   both torch's */
    const struct torch_archive *archive;
    size_t                      part;
    size_t                      number;         /* torch's number of the next entry */
};

static const char *shape_key(struct match *m, size_t part, const struct ckpt_shape *s)
{
    char text[512];

    return ckpt_arena_printf(&m->arena, "%zu:%s", part, ckpt_shape_text(text, sizeof text, s));
}

static int add_param(struct match *m, const char *name, const struct value_tensor *t,
                     const struct torch_archive *a, size_t part, struct ckpt_err *err)
{
    struct param *p = &m->param[m->n_param];

    *p = (struct param){.name = name, .t = t, .archive = a, .part = part,
                        .shape = shape_key(m, part, &t->shape)};
    if (!p->shape)
        return ckpt_nomem(err, 64);
    if (!ckpt_shape_numel(&p->numel, &t->shape))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: its shape has no count of elements", name);
    m->n_param++;
    return 0;
}

/* Add parameters of experts; an optimizer has an equal share of every layer's. */
static int take_experts(struct match *m, const struct ds_experts *x, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; x && i < x->n; i++) {
        const struct ds_expert *e = &x->item[i];
        size_t share = x->n_optim ? e->of / x->n_optim : 0;

        if (share == 0 || e->of % x->n_optim != 0)
            return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous", "optimizer: of stage 0, "
                                "without names: %zu optimizers of a layer of %zu experts",
                                x->n_optim, e->of);
        if ((rc = add_param(m, e->name, e->t, e->archive, 1 + e->number / share, err)) != 0)
            return rc;
    }
    return 0;
}

/* Add parameters of a pipeline, of any stage. */
static int take_layers(struct match *m, struct ckpt_err *err)
{
    const struct ds_layers *l = m->f->layers;
    int rc;

    m->param = ckpt_arena_alloc(&m->arena, l->n, sizeof *m->param);
    if (!m->param)
        return ckpt_nomem(err, l->n * sizeof *m->param);
    for (size_t i = 0; i < l->n; i++)
        if (!ds_layer_buffer(m->f, l->item[i].name) &&
            (rc = add_param(m, l->item[i].name, l->item[i].t, l->item[i].archive, 0, err)) != 0)
            return rc;
    return 0;
}

/* Add parameters of the module: no buffers, tied names once; then those of experts. */
static int take_module(struct match *m, struct ds_module *mod, struct ckpt_err *err)
{
    const struct ds_experts *x = m->f->experts;
    size_t n = mod->dict->u.dict.n, first, all = n + (x ? x->n : 0);
    int rc;

    m->param = ckpt_arena_alloc(&m->arena, all, sizeof *m->param);
    if (!m->param)
        return ckpt_nomem(err, all * sizeof *m->param);
    for (size_t i = 0; i < n; i++) {
        const char *name = value_as_str(mod->dict->u.dict.key[i]);
        const struct value *v = mod->dict->u.dict.val[i];

        if (!name || !value_is(v, VALUE_TENSOR) ||
            ckpt_map_get(mod->buffers, name, strlen(name)) != CKPT_MAP_NONE)
            continue;
        if ((rc = ds_module_first(&first, mod, i, err)) != 0)
            return rc;
        if (first == i && (rc = add_param(m, name, v->u.tensor, m->f->rank[0].model, 0,
                                          err)) != 0)
            return rc;
    }
    return take_experts(m, x, err);
}

static int take_params(struct match *m, struct ckpt_err *err)
{
    struct ds_module mod;
    int rc;

    if (m->f->layers)
        return take_layers(m, err);
    rc = ds_module_open(&mod, m->f, err);
    if (rc == 0)
        rc = take_module(m, &mod, err);
    ds_module_close(&mod);
    return rc;
}

static struct entry *new_entry(struct match *m, struct ckpt_err *err)
{
    if (ckpt_reserve(&m->entry, m->n_entry, &m->cap_entry, sizeof *m->entry, err))
        return NULL;
    m->entry[m->n_entry] = (struct entry){0};
    return &m->entry[m->n_entry++];
}

/* Whether elements [from, from + n) of the rounded master equal the parameter's. */
static int same_window(bool *same, const struct torch_archive *a, const struct value_tensor *master,
                       const struct param *p, int64_t from, int64_t n, struct ckpt_err *err)
{
    unsigned char wide[SAMPLE * 8], rounded[SAMPLE * 8], found[SAMPLE * 8];
    int rc;

    if ((rc = torch_archive_read(wide, a, master, from, n, err)) != 0 ||
        (rc = torch_archive_read(found, p->archive, p->t, from, n, err)) != 0)
        return rc;
    ckpt_convert(rounded, p->t->dtype, wide, master->dtype, (size_t)n);
    *same = memcmp(rounded, found, (size_t)n * ckpt_dtype_size(p->t->dtype)) == 0;
    return 0;
}

/* Whether the first and last elements of the master equal those of the parameter of its shape. */
static int same_values(bool *same, const struct torch_archive *a,
                       const struct value_tensor *master, const struct param *p,
                       struct ckpt_err *err)
{
    int64_t n = p->numel < SAMPLE ? p->numel : SAMPLE;
    int rc = 0;

    *same = ckpt_convert_can(p->t->dtype, master->dtype) && ckpt_dtype_size(p->t->dtype) <= 8 &&
            ckpt_dtype_size(master->dtype) <= 8;
    if (*same && n > 0)
        rc = same_window(same, a, master, p, 0, n, err);
    if (rc == 0 && *same && p->numel > n)
        rc = same_window(same, a, master, p, p->numel - n, n, err);
    return rc;
}

/* -- entries --------------------------------------------------------------------------------- */

/* Number i of group g has tensors of its own. */
static int take_entry(struct match *m, struct optimizer *o, size_t g, const struct value *number,
                      const struct value *master, struct ckpt_err *err)
{
    struct entry *e = new_entry(m, err);
    const struct value *v = value_is(master, VALUE_TENSOR) ? master : NULL;
    int64_t key;

    if (!e)
        return ckpt_err_code(err);
    e->group = g;
    e->archive = o->archive;
    e->state = ds_numbered(value_get(o->inner, "state"), o->number);
    e->master = v ? v->u.tensor : NULL;
    if (!value_as_int(number, &key) || key != (int64_t)o->number)
        return ckpt_fail(err, CKPT_EFORMAT, "optimizer: number %zu of its entries is not where "
                         "torch counts it, in group %zu", o->number, g);
    /* Without a master, any tensor of the parameter's shape tells it: moments have it. */
    for (size_t i = 0; !v && value_is(e->state, VALUE_DICT) && i < e->state->u.dict.n; i++)
        if (value_is(e->state->u.dict.val[i], VALUE_TENSOR) &&
            e->state->u.dict.val[i]->u.tensor->shape.rank > 0)
            v = e->state->u.dict.val[i];
    if (!v)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "optimizer: entry %zu has no moment, which "
                         "would have its shape", o->number);
    e->shape = shape_key(m, o->part, &v->u.tensor->shape);
    return e->shape ? 0 : ckpt_nomem(err, 64);
}

/* A window of a flat tensor, with a parameter's shape; NULL when out of memory. */
static const struct value_tensor *window(struct ckpt_arena *a, const struct value_tensor *flat,
                                         int64_t at, const struct ckpt_shape *shape)
{
    struct value_tensor *t = ckpt_arena_alloc(a, 1, sizeof *t);

    if (!t)
        return NULL;
    *t = *flat;
    t->offset += at;
    t->shape = *shape;
    value_tensor_pack(t);
    return t;
}

/* Assign the next parameter of a flat group: in the module's order, the first with equal values. */
static int take_window(struct match *m, const struct optimizer *o, size_t g,
                       const struct value_tensor *flat, size_t *after, int64_t *at,
                       struct ckpt_err *err)
{
    int rc;

    for (size_t k = 0; k < m->n_param; k++) {
        struct param *p = &m->param[(*after + k) % m->n_param];
        const struct value_tensor *t;
        struct entry *e;
        bool same = false;

        if (p->taken || p->part != o->part || p->numel == 0 ||
            p->numel > flat->shape.dim[0] - *at)
            continue;
        t = window(&m->arena, flat, *at, &p->t->shape);
        if (!t)
            return ckpt_nomem(err, sizeof *t);
        if ((rc = same_values(&same, o->archive, t, p, err)) != 0)
            return rc;
        if (!same)
            continue;
        if (!(e = new_entry(m, err)))
            return ckpt_err_code(err);
        *e = (struct entry){.param = p, .master = t, .archive = o->archive, .group = g,
                            .flat = true, .at = *at,
                            .state = ds_numbered(value_get(o->inner, "state"), o->number)};
        p->taken = true;
        *after = (size_t)(p - m->param) + 1;
        *at += p->numel;
        return 0;
    }
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous", "optimizer: of stage 0, without "
                        "names: no parameter has the values of group %zu from element %lld", g,
                        (long long)*at);
}

/* FP16_Optimizer: a group is one tensor that contains its parameters one after another. */
static int take_flat(struct match *m, struct optimizer *o, size_t g, const struct value *v,
                     struct ckpt_err *err)
{
    const struct value_tensor *flat = value_is(v, VALUE_TENSOR) ? v->u.tensor : NULL;
    size_t after = 0;
    int64_t at = 0;
    int rc;

    if (!flat || flat->shape.rank != 1 || (flat->shape.dim[0] > 1 && flat->stride[0] != 1))
        return ckpt_fail(err, CKPT_EFORMAT, "optimizer: entry %zu of fp32_groups_flat is no flat "
                         "tensor", g);
    while (at < flat->shape.dim[0])
        if ((rc = take_window(m, o, g, flat, &after, &at, err)) != 0)
            return rc;
    o->number++;
    return 0;
}

/* Read the optimizer's entries, group by group; masters are stored in the same order. */
static int take_entries(struct match *m, struct optimizer *o, struct ckpt_err *err)
{
    const struct value *groups = value_get(o->inner, "param_groups");
    const struct value *masters = value_get(o->outer, "fp32_groups");
    const struct value *flat = value_get(o->outer, "fp32_groups_flat");
    size_t first = o->part;
    int rc;

    for (size_t g = 0; value_is(groups, VALUE_LIST) && g < groups->u.seq.n; g++) {
        const struct value *p = value_get(value_item(groups, g), "params");
        size_t n = value_is(p, VALUE_LIST) ? p->u.seq.n : 0;
        int64_t experts = 0;

        value_as_int(value_get(value_item(groups, g), "moe"), &experts);
        o->part = experts ? first : 0;
        /* Every optimizer has the parameters outside experts; the first one is used. */
        if (!experts && first > 1) {
            o->number += n;
            continue;
        }
        if (flat && (rc = take_flat(m, o, g, value_item(flat, g), err)) != 0)
            return rc;
        for (size_t i = 0; !flat && i < n; i++, o->number++)
            if ((rc = take_entry(m, o, g, p->u.seq.item[i], value_item(value_item(masters, g), i),
                                 err)) != 0)
                return rc;
    }
    return 0;
}

/* Optimizer number i: of an expert-parallel group, or of rank 0; false when there is none. */
static bool optimizer_at(struct optimizer *o, const struct ds_files *f, size_t i)
{
    const struct ds_experts *x = f->experts;
    bool many = x && x->n_optim > 0;

    *o = (struct optimizer){.part = many ? i + 1 : 0};
    if (i >= (many ? x->n_optim : 1))
        return false;
    o->outer = many ? ds_expert_optim(x, i) : value_get(f->rank[0].model_root, "optimizer");
    o->archive = many ? x->optim[i] : f->rank[0].model;
    o->inner = value_get(o->outer, "optimizer_state_dict");
    o->inner = o->inner ? o->inner : o->outer;
    return true;
}

/* -- matching -------------------------------------------------------------------------------- */

static int class_of(struct class **out, struct match *m, const char *shape, struct ckpt_err *err)
{
    size_t c = ckpt_map_get(m->by_shape, shape, strlen(shape));
    int rc;

    if (c == CKPT_MAP_NONE) {
        c = m->n_class++;
        if ((rc = ckpt_map_add(m->by_shape, shape, strlen(shape), c, err)) != 0)
            return rc;
    }
    *out = &m->class[c];
    return 0;
}

/* Put parameters and entries into classes. */
static int sort_shapes(struct match *m, struct ckpt_err *err)
{
    size_t total = m->n_param + m->n_entry;
    struct class *c;
    int rc = 0;

    m->class = ckpt_arena_alloc(&m->arena, total, sizeof *m->class);
    if (!m->class)
        return ckpt_nomem(err, total * sizeof *m->class);
    for (size_t i = 0; i < m->n_param; i++) {
        if ((rc = class_of(&c, m, m->param[i].shape, err)) != 0)
            return rc;
        c->n_param++;
    }
    for (size_t i = 0; i < m->n_class; i++) {
        c = &m->class[i];
        if (!(c->param = ckpt_arena_alloc(&m->arena, c->n_param, sizeof *c->param)))
            return ckpt_nomem(err, c->n_param * sizeof *c->param);
        c->n_param = 0;
    }
    for (size_t i = 0; i < m->n_param; i++) {
        if ((rc = class_of(&c, m, m->param[i].shape, err)) != 0)
            return rc;
        c->param[c->n_param++] = i;
    }
    for (size_t i = 0; rc == 0 && i < m->n_entry; i++)
        if (!m->entry[i].param && (rc = class_of(&c, m, m->entry[i].shape, err)) == 0) {
            c->mixed |= c->n_entry++ > 0 && c->group != m->entry[i].group;
            c->group = m->entry[i].group;
        }
    return rc;
}

/* Whether two parameters of one shape are the same bytes. */
static int same_bytes(bool *same, const struct param *p, const struct param *q,
                      struct ckpt_err *err)
{
    unsigned char a[SAMPLE * 8], b[SAMPLE * 8];
    size_t width = ckpt_dtype_size(p->t->dtype);
    int rc;

    *same = p->t->dtype == q->t->dtype && width > 0 && width <= 8;
    for (int64_t at = 0; *same && at < p->numel; at += SAMPLE) {
        int64_t n = p->numel - at < SAMPLE ? p->numel - at : SAMPLE;

        if ((rc = torch_archive_read(a, p->archive, p->t, at, n, err)) != 0 ||
            (rc = torch_archive_read(b, q->archive, q->t, at, n, err)) != 0)
            return rc;
        *same = memcmp(a, b, (size_t)n * width) == 0;
    }
    return 0;
}

/* Runs with experts save tied names as copies of the tensor: these are not parameters. */
static int drop_copies(struct match *m, struct class *c, struct ckpt_err *err)
{
    size_t kept = 0;
    int rc;

    for (size_t i = 0; i < c->n_param; i++) {
        bool same = false;

        for (size_t k = 0; !same && k < kept; k++)
            if ((rc = same_bytes(&same, &m->param[c->param[k]], &m->param[c->param[i]],
                                 err)) != 0)
                return rc;
        if (!same)
            c->param[kept++] = c->param[i];
    }
    c->n_param = kept;
    return 0;
}

/* Assign a parameter to the entry: of those left in the class the first that is possible. */
static int name_entry(struct match *m, struct entry *e, struct ckpt_err *err)
{
    struct class *c;
    bool same = false;
    int rc;

    if ((rc = class_of(&c, m, e->shape, err)) != 0)
        return rc;
    if (!e->master && c->n_param > c->n_entry && (rc = drop_copies(m, c, err)) != 0)
        return rc;
    if (!e->master && (c->n_param != c->n_entry || (c->mixed && c->n_param > 1)))
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous",
                            "optimizer: of stage 0, without names: %zu entries of shape %s could "
                            "be any of %zu parameters", c->n_entry, strchr(e->shape, ':') + 1,
                            c->n_param);
    while (c->next < c->n_param && m->param[c->param[c->next]].taken)
        c->next++;
    for (size_t i = c->next; i < c->n_param; i++) {
        struct param *p = &m->param[c->param[i]];

        if (!p->taken && e->master && (rc = same_values(&same, e->archive, e->master, p,
                                                        err)) != 0)
            return rc;
        if (p->taken || (e->master && !same))
            continue;
        p->taken = true;
        e->param = p;
        return 0;
    }
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous",
                        "optimizer: of stage 0, without names: no parameter of shape %s has the "
                        "values of entry %zu", strchr(e->shape, ':') + 1,
                        (size_t)(e - m->entry));
}

static int open_match(struct match *m, const struct ds_files *f, struct ckpt_err *err)
{
    struct optimizer o;
    int rc;

    memset(m, 0, sizeof *m);
    m->f = f;
    rc = ckpt_map_new(&m->by_shape, 64, err);
    if (rc == 0)
        rc = take_params(m, err);
    for (size_t i = 0; rc == 0 && optimizer_at(&o, f, i); i++)
        rc = take_entries(m, &o, err);
    if (rc == 0)
        rc = sort_shapes(m, err);
    for (size_t i = 0; rc == 0 && i < m->n_entry; i++)
        rc = m->entry[i].param ? 0 : name_entry(m, &m->entry[i], err);
    return rc;
}

static void close_match(struct match *m)
{
    ckpt_map_free(m->by_shape);
    ckpt_free(m->entry);
    ckpt_arena_release(&m->arena);
}

int ds_stage0_names(struct ds_numbered **out, size_t *n, struct ckpt_arena *arena,
                    const struct ds_files *f, struct ckpt_err *err)
{
    struct match m;
    int rc = open_match(&m, f, err);

    *n = m.n_entry;
    *out = rc ? NULL : ckpt_arena_alloc(arena, m.n_entry, sizeof **out);
    if (rc == 0 && !*out)
        rc = ckpt_nomem(err, m.n_entry * sizeof **out);
    for (size_t i = 0; rc == 0 && i < m.n_entry; i++) {
        const struct entry *e = &m.entry[i];

        (*out)[i] = (struct ds_numbered){
            .name = e->param->name, .shape = e->param->t->shape, .group = e->group,
            .dtype = e->master ? e->master->dtype : e->param->t->dtype, .state = e->state};
    }
    close_match(&m);
    return rc;
}

/* A parameter that ties pipeline stages is listed in each of them. */
static bool is_listed(const struct ckpt_tensors *list, const struct ds_files *f, const char *name)
{
    return f->mp > 0 && ckpt_tensors_find(list, name) != SIZE_MAX;
}

int ds_master_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    struct optimizer o;
    struct match m;
    int rc;

    if (!optimizer_at(&o, f, 0) || (!value_is(value_get(o.outer, "fp32_groups"), VALUE_LIST) &&
                                    !value_is(value_get(o.outer, "fp32_groups_flat"), VALUE_LIST)))
        return 0;
    rc = open_match(&m, f, err);
    for (size_t i = 0; rc == 0 && i < m.n_entry; i++)
        if (m.entry[i].master && !is_listed(list, f, m.entry[i].param->name))
            rc = ds_tensor_add(list, m.entry[i].archive, m.entry[i].param->name,
                              m.entry[i].master, CKPT_WEIGHT, err);
    close_match(&m);
    if (rc == CKPT_EUNSUPPORTED) {
        ckpt_log(CKPT_LOG_WARNING, "%s; weights are the module's, in its dtype", err->text);
        rc = 0;
    }
    return rc;
}

static int list_moment(struct ckpt_tensors *list, struct match *m, const struct entry *e,
                       const char *state, struct ckpt_err *err)
{
    const struct value *v = value_get(e->state, state);
    const char *name = ckpt_arena_printf(&list->arena, "%s|%s", e->param->name, state);
    const struct value_tensor *t = value_is(v, VALUE_TENSOR) ? v->u.tensor : NULL;

    if (!name)
        return ckpt_nomem(err, 64);
    if (t && e->flat) {
        if (t->shape.rank != 1 || e->at > t->shape.dim[0] - e->param->numel)
            return ckpt_fail(err, CKPT_EFORMAT, "optimizer: %s of group %zu is shorter than its "
                             "weights", state, e->group);
        t = window(&m->arena, t, e->at, &e->param->t->shape);
        if (!t)
            return ckpt_nomem(err, sizeof *t);
    }
    return t && !is_listed(list, m->f, name)
               ? ds_tensor_add(list, e->archive, name, t, CKPT_OPTIM, err) : 0;
}

int ds_moment_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err)
{
    struct match m;
    int rc = open_match(&m, f, err);

    for (size_t i = 0; rc == 0 && i < m.n_entry; i++)
        rc = list_moment(list, &m, &m.entry[i], state, err);
    close_match(&m);
    return rc;
}
