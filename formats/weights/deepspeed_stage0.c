/* deepspeed_stage0 - see deepspeed_stage0.h. */
#include "formats/weights/deepspeed_stage0.h"

#include <string.h>

#include "formats/weights/deepspeed_whole.h"
#include "libckpt/convert.h"
#include "libckpt/log.h"

#define SAMPLE 2048             /* elements that tell one parameter from another */

/* One entry of the optimizer. */
struct entry {
    const struct param        *param;   /* once it is known */
    const struct value        *state;   /* dictionary of moments */
    const struct value_tensor *master;  /* f32 copy, or NULL */
    const char                *shape;   /* as text: what entries and parameters are matched by */
    size_t                     group;
};

/* One parameter of `module`. */
struct param {
    const char                *name, *shape;
    const struct value_tensor *t;
    bool                       taken;
};

/* What is of one shape. */
struct class {
    size_t *param;                      /* [n_param] numbers of its parameters */
    size_t  n_param;
    size_t  n_entry, group;             /* of its entries */
    size_t  next;                       /* parameters before it are taken */
    bool    mixed;                      /* its entries are of several groups */
};

struct match {
    struct ckpt_arena           arena;
    const struct torch_archive *archive;
    struct param    *param;
    struct entry    *entry;
    struct class    *class;
    size_t           n_param, n_entry, n_class;
    struct ckpt_map *by_shape;          /* shape -> number of a class */
};

static const char *shape_key(struct match *m, const struct ckpt_shape *s)
{
    char text[512];

    return ckpt_arena_printf(&m->arena, "%s", ckpt_shape_text(text, sizeof text, s));
}

/* Parameters of the module: no buffers, tied names once. */
static int take_params(struct match *m, struct ds_module *mod, struct ckpt_err *err)
{
    size_t n = mod->dict->u.dict.n, first;

    m->param = ckpt_arena_alloc(&m->arena, n, sizeof *m->param);
    if (!m->param)
        return ckpt_nomem(err, n * sizeof *m->param);
    for (size_t i = 0; i < n; i++) {
        const char *name = value_as_str(mod->dict->u.dict.key[i]);
        const struct value *v = mod->dict->u.dict.val[i];
        struct param *p = &m->param[m->n_param];

        if (!name || !value_is(v, VALUE_TENSOR) ||
            ckpt_map_get(mod->buffers, name, strlen(name)) != CKPT_MAP_NONE)
            continue;
        if (ds_module_first(&first, mod, i, err))
            return err->code;
        if (first != i)
            continue;
        *p = (struct param){.name = name, .t = v->u.tensor,
                            .shape = shape_key(m, &v->u.tensor->shape)};
        if (!p->shape)
            return ckpt_nomem(err, 64);
        m->n_param++;
    }
    return 0;
}

/* Entry m->n_entry: number i of group g. */
static int take_entry(struct match *m, const struct ds_files *f, size_t g,
                      const struct value *number, const struct value *master,
                      struct ckpt_err *err)
{
    struct entry *e = &m->entry[m->n_entry];
    const struct value *v = value_is(master, VALUE_TENSOR) ? master : NULL;
    int64_t key;

    e->group = g;
    e->state = ds_state(f, 0, m->n_entry);
    e->master = v ? v->u.tensor : NULL;
    if (!value_as_int(number, &key) || key != (int64_t)m->n_entry)
        return ckpt_fail(err, CKPT_EFORMAT, "optimizer: number %zu of its entries is not where "
                         "torch counts it, in group %zu", m->n_entry, g);
    /* Without a master any tensor of the parameter's shape tells it: moments have it. */
    for (size_t i = 0; !v && value_is(e->state, VALUE_DICT) && i < e->state->u.dict.n; i++)
        if (value_is(e->state->u.dict.val[i], VALUE_TENSOR) &&
            e->state->u.dict.val[i]->u.tensor->shape.rank > 0)
            v = e->state->u.dict.val[i];
    if (!v)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "optimizer: entry %zu has no moment to tell its "
                         "shape by", m->n_entry);
    e->shape = shape_key(m, &v->u.tensor->shape);
    m->n_entry++;
    return e->shape ? 0 : ckpt_nomem(err, 64);
}

/* The optimizer's entries, group by group; masters lie beside in the same order. */
static int take_entries(struct match *m, const struct ds_files *f, struct ckpt_err *err)
{
    const struct value *groups = ds_param_groups(f, 0);
    const struct value *masters =
        value_get(value_get(f->rank[0].model_root, "optimizer"), "fp32_groups");
    size_t n_group = value_is(groups, VALUE_LIST) ? groups->u.seq.n : 0, n = 0;

    for (size_t g = 0; g < n_group; g++) {
        const struct value *p = value_get(ds_item(groups, g), "params");

        n += value_is(p, VALUE_LIST) ? p->u.seq.n : 0;
    }
    m->entry = ckpt_arena_alloc(&m->arena, n, sizeof *m->entry);
    if (!m->entry)
        return ckpt_nomem(err, n * sizeof *m->entry);
    for (size_t g = 0; g < n_group; g++) {
        const struct value *p = value_get(ds_item(groups, g), "params");

        for (size_t i = 0; value_is(p, VALUE_LIST) && i < p->u.seq.n; i++)
            if (take_entry(m, f, g, p->u.seq.item[i], ds_item(ds_item(masters, g), i), err))
                return err->code;
    }
    return 0;
}

static int class_of(struct class **out, struct match *m, const char *shape, struct ckpt_err *err)
{
    size_t c = ckpt_map_get(m->by_shape, shape, strlen(shape));

    if (c == CKPT_MAP_NONE) {
        c = m->n_class++;
        if (ckpt_map_add(m->by_shape, shape, strlen(shape), c, err))
            return err->code;
    }
    *out = &m->class[c];
    return 0;
}

/* Put parameters and entries into classes. */
static int sort_shapes(struct match *m, struct ckpt_err *err)
{
    size_t total = m->n_param + m->n_entry;
    struct class *c;

    m->class = ckpt_arena_alloc(&m->arena, total, sizeof *m->class);
    if (!m->class)
        return ckpt_nomem(err, total * sizeof *m->class);
    for (size_t i = 0; i < m->n_param; i++) {
        if (class_of(&c, m, m->param[i].shape, err))
            return err->code;
        c->n_param++;
    }
    for (size_t i = 0; i < m->n_class; i++) {
        c = &m->class[i];
        if (!(c->param = ckpt_arena_alloc(&m->arena, c->n_param, sizeof *c->param)))
            return ckpt_nomem(err, c->n_param * sizeof *c->param);
        c->n_param = 0;
    }
    for (size_t i = 0; i < m->n_param; i++) {
        if (class_of(&c, m, m->param[i].shape, err))
            return err->code;
        c->param[c->n_param++] = i;
    }
    for (size_t i = 0; i < m->n_entry; i++) {
        if (class_of(&c, m, m->entry[i].shape, err))
            return err->code;
        c->mixed |= c->n_entry++ > 0 && c->group != m->entry[i].group;
        c->group = m->entry[i].group;
    }
    return 0;
}

/* Whether the first elements of the master, rounded, are those of the parameter. */
static int same_values(bool *same, struct match *m, const struct value_tensor *master,
                       const struct value_tensor *t, struct ckpt_err *err)
{
    unsigned char wide[SAMPLE * 8], rounded[SAMPLE * 8], found[SAMPLE * 8];
    struct ckpt_arena a = {0};
    struct ckpt_fragment *frag;
    int64_t n = 0;
    int rc = 0;

    *same = ckpt_convert_can(t->dtype, master->dtype) && ckpt_dtype_size(t->dtype) <= 8 &&
            ckpt_dtype_size(master->dtype) <= 8 && ckpt_shape_numel(&n, &t->shape);
    n = n < SAMPLE ? n : SAMPLE;
    if (!*same || n == 0)
        return 0;
    rc = torch_archive_fragment(&frag, &a, m->archive, master, err);
    if (rc == 0)
        rc = ckpt_gather(wide, &master->shape, master->dtype, frag, 1, 0, n, err);
    if (rc == 0)
        rc = torch_archive_fragment(&frag, &a, m->archive, t, err);
    if (rc == 0)
        rc = ckpt_gather(found, &t->shape, t->dtype, frag, 1, 0, n, err);
    if (rc == 0) {
        ckpt_convert(rounded, t->dtype, wide, master->dtype, (size_t)n);
        *same = memcmp(rounded, found, (size_t)n * ckpt_dtype_size(t->dtype)) == 0;
    }
    ckpt_arena_release(&a);
    return rc;
}

/* Give the entry its parameter: of those left in the class the first that can be it. */
static int name_entry(struct match *m, struct entry *e, struct ckpt_err *err)
{
    struct class *c;
    bool same = false;

    if (class_of(&c, m, e->shape, err))
        return err->code;
    if (!e->master && (c->n_param != c->n_entry || (c->mixed && c->n_param > 1)))
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous",
                            "optimizer: of stage 0, without names: %zu entries of shape %s could "
                            "be any of %zu parameters", c->n_entry, e->shape, c->n_param);
    while (c->next < c->n_param && m->param[c->param[c->next]].taken)
        c->next++;
    for (size_t i = c->next; i < c->n_param; i++) {
        struct param *p = &m->param[c->param[i]];

        if (!p->taken && e->master && same_values(&same, m, e->master, p->t, err))
            return err->code;
        if (p->taken || (e->master && !same))
            continue;
        p->taken = true;
        e->param = p;
        return 0;
    }
    return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ambiguous",
                        "optimizer: of stage 0, without names: no parameter of shape %s has the "
                        "values of entry %zu", e->shape, (size_t)(e - m->entry));
}

static int open_match(struct match *m, const struct ds_files *f, struct ckpt_err *err)
{
    struct ds_module mod;
    int rc;

    memset(m, 0, sizeof *m);
    m->archive = f->rank[0].model;
    rc = ds_module_open(&mod, f, err);
    if (rc == 0)
        rc = ckpt_map_new(&m->by_shape, mod.dict->u.dict.n, err);
    if (rc == 0)
        rc = take_params(m, &mod, err);
    if (rc == 0)
        rc = take_entries(m, f, err);
    if (rc == 0)
        rc = sort_shapes(m, err);
    for (size_t i = 0; rc == 0 && i < m->n_entry; i++)
        rc = name_entry(m, &m->entry[i], err);
    ds_module_close(&mod);
    return rc;
}

static void close_match(struct match *m)
{
    ckpt_map_free(m->by_shape);
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

int ds_master_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    const struct value *o = value_get(f->rank[0].model_root, "optimizer");
    struct match m;
    int rc;

    if (!value_is(value_get(o, "fp32_groups"), VALUE_LIST))
        return 0;
    rc = open_match(&m, f, err);
    for (size_t i = 0; rc == 0 && i < m.n_entry; i++)
        if (m.entry[i].master)
            rc = ds_whole_add(list, f, m.entry[i].param->name, m.entry[i].master, CKPT_WEIGHT, err);
    close_match(&m);
    if (rc == CKPT_EUNSUPPORTED) {
        ckpt_log(CKPT_LOG_WARNING, "%s; weights are the module's, in its dtype", err->text);
        ckpt_err_clear(err);
        rc = 0;
    }
    return rc;
}

int ds_moment_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err)
{
    struct match m;
    int rc = open_match(&m, f, err);

    for (size_t i = 0; rc == 0 && i < m.n_entry; i++) {
        const struct value *v = value_get(m.entry[i].state, state);
        const char *name = ckpt_arena_printf(&list->arena, "%s|%s", m.entry[i].param->name, state);

        if (!name)
            rc = ckpt_nomem(err, 64);
        else if (value_is(v, VALUE_TENSOR))
            rc = ds_whole_add(list, f, name, v->u.tensor, CKPT_OPTIM, err);
    }
    close_match(&m);
    return rc;
}
