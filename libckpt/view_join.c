/* view_join - several sources as one list; see view.h. */
#include <string.h>

#include "libckpt/view.h"

struct join {
    struct ckpt_source **below;
    size_t               n;
    size_t              *which, *index;     /* [tensors] source and index in it */
};

static int join_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    struct join *j = self;

    return ckpt_source_read(j->below[j->which[i]], j->index[i], start, count, dst, err);
}

static bool join_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    struct join *j = self;

    return ckpt_source_locate(j->below[j->which[i]], j->index[i], start, count, out);
}

static void join_close(void *self)
{
    struct join *j = self;

    for (size_t i = 0; i < j->n; i++)
        ckpt_source_close(j->below[i]);
    ckpt_free(j->below);
    ckpt_free(j->which);
    ckpt_free(j->index);
    ckpt_free(j);
}

static const struct ckpt_source_ops join_ops = {
    .format = "view", .read = join_read, .locate = join_locate, .close = join_close,
};

static int add_all(struct join *j, struct ckpt_tensors *list, size_t k, struct ckpt_err *err)
{
    size_t first = list->n;

    for (size_t i = 0; i < ckpt_source_count(j->below[k]); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(j->below[k], i);
        struct ckpt_tensor *added;

        if (ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape, NULL, 0,
                             t->flat, err))
            return err->code;
        added->kind = t->kind;
        added->alias_of = first + t->alias_of;
        j->which[list->n - 1] = k;
        j->index[list->n - 1] = i;
    }
    return 0;
}

int ckpt_view_join(struct ckpt_source **out, struct ckpt_source **src, size_t n,
                   struct ckpt_err *err)
{
    struct join *j = ckpt_alloc(1, sizeof *j);
    struct ckpt_source **below = ckpt_alloc(n, sizeof *below);
    struct ckpt_tensors list = {0};
    size_t total = 0;
    int rc = 0;

    *out = NULL;
    for (size_t k = 0; k < n; k++)
        total += ckpt_source_count(src[k]);
    if (!j || !below) {
        ckpt_free(j);
        ckpt_free(below);
        for (size_t k = 0; k < n; k++)
            ckpt_source_close(src[k]);
        return ckpt_nomem(err, n * sizeof *below);
    }
    memcpy(below, src, n * sizeof *below);
    j->below = below;
    j->n = n;
    j->which = ckpt_alloc(total, sizeof *j->which);
    j->index = ckpt_alloc(total, sizeof *j->index);
    if (!j->which || !j->index)
        rc = ckpt_nomem(err, total * sizeof *j->which);
    for (size_t k = 0; rc == 0 && k < n; k++)
        rc = add_all(j, &list, k, err);
    if (rc) {
        join_close(j);
        ckpt_tensors_release(&list);
        return rc;
    }
    return ckpt_source_new(out, &join_ops, j, &list, NULL, 0,
                           json_incref((json_t *)ckpt_source_info(below[0])), err);
}
