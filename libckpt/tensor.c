/* tensor - see tensor.h. */
#include "libckpt/tensor.h"

#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/base/map.h"

static int check_name(const char *name, size_t len, struct ckpt_err *err)
{
    if (len > CKPT_MAX_NAME)
        return ckpt_fail(err, CKPT_ELIMIT, "a tensor's name has %zu bytes, %d at most", len,
                         CKPT_MAX_NAME);
    if (!ckpt_utf8_valid(name, len))
        return ckpt_fail(err, CKPT_EFORMAT, "a tensor's name is not strict UTF-8: %.*s",
                         (int)len, name);
    return 0;
}

/* Make space for one more, and create the map on first use. */
static int make_room(struct ckpt_tensors *list, struct ckpt_err *err)
{
    int rc;

    if (!list->by_name && (rc = ckpt_map_new(&list->by_name, 64, err)) != 0)
        return rc;
    if (list->n >= CKPT_MAX_TENSORS)
        return ckpt_fail(err, CKPT_ELIMIT, "more than %d tensors", CKPT_MAX_TENSORS);
    return ckpt_reserve(&list->item, list->n, &list->cap, sizeof *list->item, err);
}

int ckpt_tensors_add(struct ckpt_tensors *list, struct ckpt_tensor **out, const char *name,
                     size_t name_len, enum ckpt_dtype dtype, const struct ckpt_shape *shape,
                     const struct ckpt_fragment *frag, size_t n_frag, bool flat,
                     struct ckpt_err *err)
{
    struct ckpt_tensor t = {.dtype = dtype, .shape = *shape, .frag = frag, .n_frag = n_frag,
                            .flat = flat, .alias_of = list->n};
    uint64_t bytes;
    char *copy;
    int rc;

    if ((rc = check_name(name, name_len, err)) != 0 || (rc = make_room(list, err)) != 0)
        return rc;
    if (dtype == CKPT_DTYPE_NONE || (unsigned)dtype >= CKPT_DTYPE_COUNT)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %.*s: unknown dtype", (int)name_len,
                         name);
    if (!ckpt_shape_numel(&t.numel, shape) || !ckpt_shape_bytes(&bytes, shape, dtype))
        return ckpt_fail(err, CKPT_EFORMAT, "tensor %.*s: its shape is out of range",
                         (int)name_len, name);
    copy = ckpt_arena_strndup(&list->arena, name, name_len);
    if (!copy)
        return ckpt_nomem(err, name_len);
    if (ckpt_map_add(list->by_name, copy, name_len, list->n, err))
        return ckpt_err_in(err, "tensor");
    t.name = copy;
    list->item[list->n++] = t;
    if (out)
        *out = &list->item[list->n - 1];
    return 0;
}

size_t ckpt_tensors_find(const struct ckpt_tensors *list, const char *name)
{
    return list->by_name ? ckpt_map_get(list->by_name, name, strlen(name)) : SIZE_MAX;
}

void ckpt_tensors_release(struct ckpt_tensors *list)
{
    ckpt_map_free(list->by_name);
    ckpt_free(list->item);
    ckpt_arena_release(&list->arena);
    memset(list, 0, sizeof *list);
}

uint64_t ckpt_tensor_bytes(const struct ckpt_tensor *t)
{
    uint64_t bytes = 0;

    ckpt_shape_bytes(&bytes, &t->shape, t->dtype);
    return bytes;
}

const char *ckpt_tensor_stored(const struct ckpt_tensor *t)
{
    return t->stored ? t->stored : ckpt_dtype_name(t->dtype);
}

uint64_t ckpt_tensor_stored_bytes(const struct ckpt_tensor *t)
{
    return t->stored ? t->stored_bytes : ckpt_tensor_bytes(t);
}
