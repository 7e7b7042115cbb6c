/* views/extra - see views/extra.h. */
#include "libckpt/views/extra.h"

#include <string.h>

struct extra_view {
    struct ckpt_source *below;
    struct ckpt_file   *file;
    void               *bytes;
};

static void close_view(void *self)
{
    struct extra_view *v = self;

    ckpt_file_close(v->file);
    ckpt_free(v->bytes);
    ckpt_source_close(v->below);
    ckpt_free(v);
}

static int view_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    return ckpt_source_read(((struct extra_view *)self)->below, i, start, count, dst, err);
}

static bool view_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    return ckpt_source_locate(((struct extra_view *)self)->below, i, start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = view_read, .locate = view_locate, .close = close_view,
};

/* Copy the extras of below to the list's arena, with ours replaced. */
static int copy_extras(struct ckpt_extra **out, size_t *n, const struct extra_view *v,
                       const char *name, struct ckpt_arena *a, struct ckpt_err *err)
{
    const struct ckpt_extra *old;
    size_t n_old = ckpt_source_extras(v->below, &old), k = 0;
    struct ckpt_extra *e = ckpt_arena_alloc(a, n_old + 1, sizeof *e);
    char *copy = ckpt_arena_strndup(a, name, strlen(name));

    if (!e || !copy)
        return ckpt_nomem(err, (n_old + 1) * sizeof *e);
    if (n_old)
        memcpy(e, old, n_old * sizeof *e);
    while (k < n_old && strcmp(e[k].name, name) != 0)
        k++;
    *out = e;
    *n = k < n_old ? n_old : n_old + 1;
    if (v->file)
        e[k] = (struct ckpt_extra){copy, v->file};
    else
        for (--*n; k < *n; k++)
            e[k] = e[k + 1];
    return 0;
}

static int fill(struct extra_view *v, struct ckpt_tensors *list, const char *name,
                const void *bytes, size_t n, struct ckpt_err *err)
{
    int rc;

    if (bytes) {
        v->bytes = ckpt_alloc(n, 1);
        if (!v->bytes)
            return ckpt_nomem(err, n);
        memcpy(v->bytes, bytes, n);
        if ((rc = ckpt_file_memory(&v->file, v->bytes, n, name, err)) != 0)
            return rc;
    }
    for (size_t i = 0; i < ckpt_source_count(v->below); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(v->below, i);
        struct ckpt_tensor *added;

        if ((rc = ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape,
                                   NULL, 0, false, err)) != 0)
            return rc;
        added->kind = t->kind;
        added->alias_of = t->alias_of;
        added->unread = t->unread;
        added->stored = t->stored;
        added->stored_bytes = t->stored_bytes;
    }
    return 0;
}

int ckpt_view_extra(struct ckpt_source **out, struct ckpt_source *src, const char *name,
                    const void *bytes, size_t n, json_t *info, struct ckpt_err *err)
{
    struct extra_view *v = ckpt_alloc(1, sizeof *v);
    struct ckpt_tensors list = {0};
    struct ckpt_extra *extra = NULL;
    size_t n_extra = 0;
    int rc;

    *out = NULL;
    if (!v) {
        ckpt_source_close(src);
        json_decref(info);
        return ckpt_nomem(err, sizeof *v);
    }
    v->below = src;
    rc = fill(v, &list, name, bytes, n, err);
    if (rc == 0)
        rc = copy_extras(&extra, &n_extra, v, name, &list.arena, err);
    if (rc) {
        close_view(v);
        ckpt_tensors_release(&list);
        json_decref(info);
        return rc;
    }
    if (!info)
        info = json_incref((json_t *)ckpt_source_info(src));
    return ckpt_source_new(out, &ops, v, &list, extra, n_extra, info, err);
}
