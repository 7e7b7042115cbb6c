/* deepspeed/module - see deepspeed/module.h. */
#include "formats/deepspeed/module.h"

#include <inttypes.h>
#include <string.h>

/* Map the names in a list or set, or the keys of a dictionary. */
static int name_map(struct ckpt_map **out, const struct value *v, struct ckpt_err *err)
{
    bool dict = value_is(v, VALUE_DICT), seq = value_is(v, VALUE_LIST) || value_is(v, VALUE_SET);
    size_t n = dict ? v->u.dict.n : seq ? v->u.seq.n : 0;
    int rc;

    if ((rc = ckpt_map_new(out, n, err)) != 0)
        return rc;
    for (size_t i = 0; i < n; i++) {
        const char *name = value_as_str(dict ? v->u.dict.key[i] : v->u.seq.item[i]);

        if (name && ckpt_map_get(*out, name, strlen(name)) == CKPT_MAP_NONE &&
            (rc = ckpt_map_add(*out, name, strlen(name), i, err)) != 0)
            return rc;
    }
    return 0;
}

static bool has(const struct ckpt_map *m, const char *name)
{
    return ckpt_map_get(m, name, strlen(name)) != CKPT_MAP_NONE;
}

int ds_tensor_add(struct ckpt_tensors *list, const struct torch_archive *a, const char *name,
                 const struct value_tensor *t, enum ckpt_kind kind, struct ckpt_err *err)
{
    struct ckpt_fragment *frag = NULL;
    struct ckpt_tensor *added;
    int64_t numel;
    int rc;

    if (!ckpt_shape_numel(&numel, &t->shape))
        return ckpt_fail(err, CKPT_EFORMAT, "%s: its shape has no count of elements", name);
    if (numel > 0 && torch_archive_fragment(&frag, &list->arena, a, t, err))
        return ckpt_err_in(err, "%s", name);
    if ((rc = ckpt_tensors_add(list, &added, name, strlen(name), t->dtype, &t->shape, frag,
                               frag != NULL, false, err)) != 0)
        return rc;
    added->kind = kind;
    return 0;
}

int ds_alias_add(struct ckpt_tensors *list, const char *name, size_t kept, struct ckpt_err *err)
{
    struct ckpt_tensor t = list->item[kept], *added;
    int rc;

    if ((rc = ckpt_tensors_add(list, &added, name, strlen(name), t.dtype, &t.shape, t.frag,
                               t.n_frag, t.flat, err)) != 0)
        return rc;
    added->kind = t.kind;
    added->alias_of = t.alias_of;
    return 0;
}

/* A tensor's identity in an archive: storage, offset, dtype, shape and strides. */
static const char *identity(struct ckpt_arena *a, const struct value_tensor *t)
{
    const char *s = ckpt_arena_printf(a, "%zu+%" PRId64 ":%d", t->storage, t->offset,
                                      (int)t->dtype);

    for (int d = 0; s && d < t->shape.rank; d++)
        s = ckpt_arena_printf(a, "%s,%" PRId64 "/%" PRId64, s, t->shape.dim[d], t->stride[d]);
    return s;
}

void ds_module_close(struct ds_module *m)
{
    ckpt_map_free(m->names);
    ckpt_map_free(m->buffers);
    ckpt_map_free(m->shared);
    ckpt_map_free(m->first);
    ckpt_arena_release(&m->arena);
}

int ds_module_open(struct ds_module *m, const struct ds_files *f, struct ckpt_err *err)
{
    const struct value *root = f->rank[0].model_root;
    int rc;

    memset(m, 0, sizeof *m);
    m->dict = value_get(root, "module");
    if (!value_is(m->dict, VALUE_DICT))
        return value_is(m->dict, VALUE_NONE)
                   ? ckpt_fail(err, CKPT_EUNSUPPORTED, "module is None: a pipeline checkpoint, "
                               "which is not read")
                   : ckpt_fail(err, CKPT_EFORMAT, "no dictionary `module` in the model file");
    if ((rc = name_map(&m->names, m->dict, err)) != 0 ||
        (rc = name_map(&m->buffers, value_get(root, "buffer_names"), err)) != 0 ||
        (rc = name_map(&m->shared, value_get(root, "shared_params"), err)) != 0)
        return rc;
    return ckpt_map_new(&m->first, m->dict->u.dict.n, err);
}

int ds_module_first(size_t *out, struct ds_module *m, size_t i, struct ckpt_err *err)
{
    const char *id = identity(&m->arena, m->dict->u.dict.val[i]->u.tensor);

    if (!id)
        return ckpt_nomem(err, 64);
    *out = ckpt_map_get(m->first, id, strlen(id));
    if (*out != CKPT_MAP_NONE)
        return 0;
    *out = i;
    return ckpt_map_add(m->first, id, strlen(id), i, err);
}

static int list_entry(struct ckpt_tensors *list, const struct ds_files *f, struct ds_module *m,
                      size_t i, struct ckpt_err *err)
{
    const char *name = value_as_str(m->dict->u.dict.key[i]);
    const struct value *v = m->dict->u.dict.val[i];
    size_t first = i, kept;
    int64_t numel;
    bool buffer;
    int rc;

    if (!name || !value_is(v, VALUE_TENSOR) ||
        !ckpt_shape_numel(&numel, &v->u.tensor->shape))
        return 0;
    buffer = has(m->buffers, name);
    if (numel == 0 && f->stage == 3 && !buffer)
        return 0;
    if (numel > 0 && (rc = ds_module_first(&first, m, i, err)) != 0)
        return rc;
    if (ckpt_tensors_find(list, name) != SIZE_MAX || has(m->shared, name))
        return 0;
    kept = first == i ? SIZE_MAX
                      : ckpt_tensors_find(list, value_as_str(m->dict->u.dict.key[first]));
    if (kept != SIZE_MAX)
        return ds_alias_add(list, name, kept, err);
    return ds_tensor_add(list, f->rank[0].model, name, v->u.tensor,
                        buffer ? CKPT_BUFFER : CKPT_WEIGHT, err);
}

int ds_module_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    struct ds_module m;
    int rc = ds_module_open(&m, f, err);

    for (size_t i = 0; rc == 0 && i < m.dict->u.dict.n; i++)
        rc = list_entry(list, f, &m, i, err);
    ds_module_close(&m);
    return rc;
}

/* List one pair of shared_params. */
static int list_shared(struct ckpt_tensors *list, const struct ds_files *f,
                       const struct ds_module *m, const char *alias, const char *kept,
                       struct ckpt_err *err)
{
    size_t k = ckpt_tensors_find(list, kept), i = ckpt_map_get(m->names, alias, strlen(alias));
    const struct value *v = i == CKPT_MAP_NONE ? NULL : m->dict->u.dict.val[i];
    const struct value_tensor *t = f->stage < 3 && value_is(v, VALUE_TENSOR) ? v->u.tensor : NULL;
    char a[96], b[96];

    if (ckpt_tensors_find(list, alias) != SIZE_MAX)
        return 0;
    /* A frozen kept name may not have been saved, usually together with its alias. */
    if (k == SIZE_MAX)
        return t ? ds_tensor_add(list, f->rank[0].model, alias, t, CKPT_WEIGHT, err) : 0;
    if (t && !ckpt_shape_equal(&t->shape, &list->item[k].shape))
        return ckpt_fail_as(err, CKPT_EFORMAT, "mismatch",
                            "shared_params: %s is %s, %s that it shares is %s", alias,
                            ckpt_shape_text(a, sizeof a, &t->shape), kept,
                            ckpt_shape_text(b, sizeof b, &list->item[k].shape));
    return ds_alias_add(list, alias, k, err);
}

int ds_alias_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err)
{
    const struct value *shared = value_get(f->rank[0].model_root, "shared_params");
    struct ds_module m;
    int rc = ds_module_open(&m, f, err);

    for (size_t i = 0; rc == 0 && value_is(shared, VALUE_DICT) && i < shared->u.dict.n; i++) {
        const char *alias = value_as_str(shared->u.dict.key[i]);
        const char *kept = value_as_str(shared->u.dict.val[i]);

        rc = alias && kept ? list_shared(list, f, &m, alias, kept, err)
                           : ckpt_fail(err, CKPT_EFORMAT,
                                       "shared_params: entry %zu is no pair of names", i);
    }
    ds_module_close(&m);
    return rc;
}
