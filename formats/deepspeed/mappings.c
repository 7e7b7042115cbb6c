/* deepspeed/mappings - see deepspeed/mappings.h. */
#include "formats/deepspeed/mappings.h"

#include <string.h>

#include "formats/deepspeed/pipe.h"

bool ds_address(const struct value *v, int64_t *numel, int64_t *start)
{
    const struct value *state = value_is(v, VALUE_OBJECT) ? v->u.obj.state : NULL;

    if (value_is(state, VALUE_DICT))
        return value_as_int(value_get(state, "numel"), numel) &&
               value_as_int(value_get(state, "start"), start);
    return value_as_int(value_arg(v, 0), numel) && value_as_int(value_arg(v, 1), start);
}

/* Whether a layer's tensor can have that name: its own, or that of a tied module. */
static bool can_be(const struct ds_layer_tensor *t, const char *name)
{
    return strcmp(t->name, name) == 0 || ds_layer_may_be_tied(name, t->name);
}

/* The shape of the only tensor with that name and number of elements; NULL if none or several. */
static const struct ckpt_shape *shape_of(const struct ds_files *f, const char *name, int64_t numel)
{
    const struct value *v = value_get(value_get(f->rank[0].model_root, "module"), name);
    const struct ckpt_shape *found = value_is(v, VALUE_TENSOR) ? &v->u.tensor->shape : NULL;
    int64_t have;

    for (size_t i = 0; f->layers && i < f->layers->n; i++) {
        const struct ckpt_shape *s = &f->layers->item[i].t->shape;

        if (!can_be(&f->layers->item[i], name) || !ckpt_shape_numel(&have, s) || have != numel)
            continue;
        if (found && !ckpt_shape_equal(found, s))
            return NULL;
        found = s;
    }
    return found && ckpt_shape_numel(&have, found) && have == numel ? found : NULL;
}

/* Name and size of the next parameter, which may continue in other ranks' parts. */
struct walk {
    const struct ds_files *f;
    size_t                 g, rank, at;
};

static const struct value *map_of(const struct walk *w, size_t rank)
{
    return value_item(value_get(w->f->rank[rank].optim_root, "param_slice_mappings"), w->g);
}

/* *name NULL: there is none. */
static int next(struct walk *w, const char **name, int64_t *numel, struct ckpt_err *err)
{
    int64_t n, start;

    *name = NULL;
    *numel = 0;
    for (; w->rank < w->f->n; w->rank++, w->at = 0) {
        const struct value *map = map_of(w, w->rank);
        size_t entries = value_is(map, VALUE_DICT) ? map->u.dict.n : 0;

        for (; w->at < entries; w->at++) {
            const char *key = value_as_str(map->u.dict.key[w->at]);

            if (key && *name && strcmp(*name, key) != 0)
                return 0;
            if (!key || !ds_address(map->u.dict.val[w->at], &n, &start) || n < 0 ||
                __builtin_add_overflow(*numel, n, numel))
                return ckpt_fail(err, CKPT_EFORMAT, "rank %zu: param_slice_mappings: entry %zu of "
                                 "group %zu is not a name's number and first of elements",
                                 w->rank, w->at, w->g);
            *name = key;
        }
    }
    return 0;
}

static int add_group(struct ds_files *f, struct value *list, size_t g, struct ckpt_err *err)
{
    struct walk w = {.f = f, .g = g};
    struct value *d = value_dict(&f->arena, true);
    const struct ckpt_shape *shape;
    const char *name;
    int64_t numel;
    int rc;

    while ((rc = next(&w, &name, &numel, err)) == 0 && name) {
        shape = shape_of(f, name, numel);
        if (!shape)
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "param_shapes is in neither file of rank 0, "
                             "and no weight has the shape of the %lld elements of %s",
                             (long long)numel, name);
        if (value_set_str(&f->arena, d, name, value_size(&f->arena, shape)))
            return ckpt_nomem(err, sizeof *d);
    }
    if (rc)
        return rc;
    return value_append(&f->arena, list, d) ? ckpt_nomem(err, sizeof *d) : 0;
}

int ds_shapes_of_mappings(struct ds_files *f, struct ckpt_err *err)
{
    const struct value *maps = value_get(f->rank[0].optim_root, "param_slice_mappings");
    struct value *list = value_list(&f->arena);
    int rc;

    if (ds_shape_groups(f, 0) > 0 || !value_is(maps, VALUE_LIST))
        return 0;
    for (size_t g = 0; g < maps->u.seq.n; g++)
        if ((rc = add_group(f, list, g, err)) != 0)
            return rc;
    f->shapes = list;
    return 0;
}
