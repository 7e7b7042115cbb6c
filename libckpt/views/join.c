/* views/join - several sources as one list; see view.h. */
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
    int rc;

    for (size_t i = 0; i < ckpt_source_count(j->below[k]); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(j->below[k], i);
        struct ckpt_tensor *added;

        if ((rc = ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape,
                                   NULL, 0, t->flat, err)) != 0)
            return rc;
        added->kind = t->kind;
        added->alias_of = first + t->alias_of;
        j->which[list->n - 1] = k;
        j->index[list->n - 1] = i;
    }
    return 0;
}

/* Join the extras of all, in order; of several with one name, the first. */
static int add_extras(const struct join *j, struct ckpt_tensors *list,
                      const struct ckpt_extra **out, size_t *n_out, struct ckpt_err *err)
{
    const struct ckpt_extra *theirs;
    struct ckpt_extra *all;
    size_t total = 0, n = 0;

    for (size_t k = 0; k < j->n; k++)
        total += ckpt_source_extras(j->below[k], &theirs);
    all = ckpt_arena_alloc(&list->arena, total, sizeof *all);
    if (!all)
        return ckpt_nomem(err, total * sizeof *all);
    for (size_t k = 0; k < j->n; k++) {
        size_t n_theirs = ckpt_source_extras(j->below[k], &theirs);

        for (size_t i = 0; i < n_theirs; i++) {
            bool known = false;

            for (size_t before = 0; before < k && !known; before++)
                known = ckpt_source_extra(j->below[before], theirs[i].name) != NULL;
            if (!known)
                all[n++] = theirs[i];
        }
    }
    *out = all;
    *n_out = n;
    return 0;
}

int ckpt_view_join(struct ckpt_source **out, struct ckpt_source **src, size_t n,
                   struct ckpt_err *err)
{
    struct join *j = ckpt_alloc(1, sizeof *j);
    struct ckpt_source **below = ckpt_alloc(n, sizeof *below);
    const struct ckpt_extra *extra = NULL;
    struct ckpt_tensors list = {0};
    size_t total = 0, n_extra = 0;
    json_t *info = NULL;
    int rc = 0;

    if (!j || !below) {
        ckpt_free(j);
        ckpt_free(below);
        for (size_t k = 0; k < n; k++)
            ckpt_source_close(src[k]);
        *out = NULL;
        return ckpt_nomem(err, n * sizeof *below);
    }
    for (size_t k = 0; k < n; k++) {
        below[k] = src[k];
        total += ckpt_source_count(src[k]);
    }
    *out = NULL;                        /* only now: out may point to a source */
    j->below = below;
    j->n = n;
    j->which = ckpt_alloc(total, sizeof *j->which);
    j->index = ckpt_alloc(total, sizeof *j->index);
    if (!j->which || !j->index)
        rc = ckpt_nomem(err, total * sizeof *j->which);
    for (size_t k = 0; rc == 0 && k < n; k++)
        rc = add_all(j, &list, k, err);
    if (rc == 0)
        rc = add_extras(j, &list, &extra, &n_extra, err);
    if (rc) {
        join_close(j);
        ckpt_tensors_release(&list);
        return rc;
    }
    if (n > 0)
        info = json_incref((json_t *)ckpt_source_info(below[0]));
    return ckpt_source_new(out, &join_ops, j, &list, extra, n_extra, info, err);
}
