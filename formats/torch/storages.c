/* torch/storages - the storages of a torch file, see torch/value.h. */
#include <string.h>

#include "formats/torch/value.h"
#include "libckpt/base/map.h"

/* A view with strides of 0 may exceed its bytes by this much, and this many times. */
#define MAX_BLOWUP  64
#define FREE_BLOWUP ((uint64_t)256 << 20)

void torch_storages_release(struct torch_storages *s)
{
    ckpt_map_free(s->by_key);
    ckpt_map_free(s->by_id);
    ckpt_free(s->item);
    ckpt_free(s->named);
    memset(s, 0, sizeof *s);
}

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "pickle: %s", what);
}

/* The dtype of a storage class; its module does not matter. */
enum ckpt_dtype torch_storage_dtype(const struct value *class)
{
    if (!value_is(class, VALUE_GLOBAL))
        return CKPT_DTYPE_NONE;
    if (strcmp(class->u.obj.name, "UntypedStorage") == 0 ||
        strcmp(class->u.obj.name, "_UntypedStorage") == 0)
        return CKPT_U8;
    if (strstr(class->u.obj.name, "Storage") == NULL)
        return CKPT_DTYPE_NONE;
    return ckpt_dtype_parse(class->u.obj.name);
}

int torch_storages_add(struct torch_storages *s, size_t *index, const char *key,
                       enum ckpt_dtype dtype, int64_t numel, struct ckpt_err *err)
{
    int rc;

    if (!s->by_key && (rc = ckpt_map_new(&s->by_key, 64, err)) != 0)
        return rc;
    *index = ckpt_map_get(s->by_key, key, strlen(key));
    if (*index != CKPT_MAP_NONE)
        return s->item[*index].dtype == dtype && s->item[*index].numel == numel
                   ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "ambiguous",
                                      "storage %s: named with two classes or sizes", key);
    if (ckpt_reserve(&s->item, s->n, &s->cap, sizeof *s->item, err))
        return CKPT_ENOMEM;
    *index = s->n;
    s->item[s->n++] = (struct torch_storage){.dtype = dtype, .numel = numel, .key = key};
    return ckpt_map_add(s->by_key, key, strlen(key), *index, err);
}

int torch_storages_name(struct torch_storages *s, const char *id, struct value_tensor *t,
                        struct ckpt_err *err)
{
    size_t n;
    int rc;

    if (!s->by_id && (rc = ckpt_map_new(&s->by_id, 64, err)) != 0)
        return rc;
    n = ckpt_map_count(s->by_id);
    if (ckpt_reserve(&s->named, n, &s->cap_named, sizeof *s->named, err))
        return CKPT_ENOMEM;
    s->named[n] = t;
    return ckpt_map_add(s->by_id, id, strlen(id), n, err);
}

/* Check that the last element lies inside the base, and that the tensor is not an inflated view. */
int torch_storages_fit(const struct torch_storages *storages, const struct value_tensor *t,
                       int64_t base_numel, struct ckpt_err *err)
{
    const struct torch_storage *s = &storages->item[t->storage];
    uint64_t width = ckpt_dtype_size(t->dtype), last = (uint64_t)t->offset, part, bytes, have;
    int64_t numel;

    if (!ckpt_shape_numel(&numel, &t->shape) || !ckpt_shape_bytes(&bytes, &t->shape, t->dtype) ||
        !ckpt_mul(&have, (uint64_t)base_numel, ckpt_dtype_size(s->dtype)) || width == 0)
        return bad(err, "a tensor's size overflows");
    if (numel == 0)
        return 0;
    for (int i = 0; i < t->shape.rank; i++)
        if (!ckpt_mul(&part, (uint64_t)(t->shape.dim[i] - 1), (uint64_t)t->stride[i]) ||
            !ckpt_add(&last, last, part))
            return bad(err, "a tensor's strides overflow");
    if (last >= have / width)
        return ckpt_fail_as(err, CKPT_EFORMAT, "bounds",
                            "pickle: a tensor reaches element %llu of storage %s, which has %llu",
                            (unsigned long long)last, s->key, (unsigned long long)(have / width));
    if (bytes > FREE_BLOWUP && (bytes - FREE_BLOWUP) / MAX_BLOWUP > have)
        return ckpt_fail(err, CKPT_ELIMIT,
                         "pickle: a view of %llu bytes on a storage of %llu",
                         (unsigned long long)bytes, (unsigned long long)have);
    return 0;
}
