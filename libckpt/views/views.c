/* views/views - see views/views.h. */
#include "libckpt/views/views.h"

#include <string.h>

static int plain_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                      struct ckpt_err *err)
{
    struct view *v = self;

    return ckpt_source_read(v->below, v->map[i], start, count, dst, err);
}

static bool plain_locate(void *self, size_t i, int64_t start, int64_t count,
                         struct ckpt_extent *out)
{
    struct view *v = self;

    return ckpt_source_locate(v->below, v->map[i], start, count, out);
}

void view_close(void *self)
{
    struct view *v = self;

    ckpt_source_close(v->below);
    ckpt_free(v->map);
    ckpt_free(v);
}

const struct ckpt_source_ops view_plain_ops = {
    .format = "view", .read = plain_read, .locate = plain_locate, .close = view_close,
};

int view_new(struct view **out, size_t size, struct ckpt_source *src, size_t n,
             struct ckpt_err *err)
{
    struct view *v = ckpt_alloc(1, size);
    size_t *map = ckpt_alloc(n, sizeof *map);

    *out = NULL;
    if (!v || !map) {
        ckpt_free(v);
        ckpt_free(map);
        ckpt_source_close(src);
        return ckpt_nomem(err, n * sizeof *map);
    }
    v->below = src;
    v->map = map;
    *out = v;
    return 0;
}

int view_add(struct view *v, struct ckpt_tensors *list, size_t i, const char *name,
             enum ckpt_dtype dtype, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(v->below, i);
    struct ckpt_tensor *added;
    int rc;

    if ((rc = ckpt_tensors_add(list, &added, name, strlen(name), dtype, &t->shape, NULL, 0,
                               t->flat, err)) != 0)
        return rc;
    added->kind = t->kind;
    added->unread = t->unread;
    if (dtype == t->dtype) {
        added->stored = t->stored;
        added->stored_bytes = t->stored_bytes;
    }
    v->map[list->n - 1] = i;
    return 0;
}

int view_tie(const struct view *v, struct ckpt_tensors *list, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(v->below), *keeper = ckpt_alloc(n, sizeof *keeper);

    if (!keeper)
        return ckpt_nomem(err, n * sizeof *keeper);
    for (size_t i = 0; i < n; i++)
        keeper[i] = SIZE_MAX;
    /* Tie each to the tensor it was tied to, or to the first of that group that is left. */
    for (size_t i = 0; i < list->n; i++) {
        size_t root = ckpt_source_tensor(v->below, v->map[i])->alias_of;

        if (keeper[root] == SIZE_MAX || v->map[i] == root)
            keeper[root] = i;
    }
    for (size_t i = 0; i < list->n; i++) {
        size_t k = keeper[ckpt_source_tensor(v->below, v->map[i])->alias_of];

        list->item[i].alias_of = list->item[k].dtype == list->item[i].dtype ? k : i;
    }
    ckpt_free(keeper);
    return 0;
}

int view_finish(struct ckpt_source **out, const struct ckpt_source_ops *ops, struct view *v,
                struct ckpt_tensors *list, int rc, struct ckpt_err *err)
{
    const struct ckpt_extra *extra;
    size_t n_extra = ckpt_source_extras(v->below, &extra);

    *out = NULL;
    if (rc) {
        ckpt_tensors_release(list);
        ops->close(v);
        return rc;
    }
    return ckpt_source_new(out, ops, v, list, extra, n_extra,
                           json_incref((json_t *)ckpt_source_info(v->below)), err);
}
