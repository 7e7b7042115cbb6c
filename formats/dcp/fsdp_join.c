/* fsdp_join - see fsdp_join.h. */
#include "formats/dcp/fsdp_join.h"

#include <stdlib.h>
#include <string.h>

#include "formats/dcp/boxes.h"
#include "formats/dcp/names.h"
#include "libckpt/base/map.h"

/* A rank's piece, and the tensor it belongs to. */
struct owned {
    struct fsdp_piece p;
    size_t            tensor, rank;
};

struct fsdp_join {
    struct ckpt_arena arena;        /* keys, names */
    struct owned     *piece;
    size_t            n, cap;
    struct dcp_item  *item;         /* one per tensor or marker, in order of first mention */
    size_t            n_item, cap_item;
    struct ckpt_map  *by_path;
    size_t            ranks;
    bool              local;
};

int fsdp_join_new(struct fsdp_join **out, struct ckpt_err *err)
{
    struct fsdp_join *j = ckpt_alloc(1, sizeof *j);
    int rc;

    *out = NULL;
    if (!j)
        return ckpt_nomem(err, sizeof *j);
    rc = ckpt_map_new(&j->by_path, 256, err);
    if (rc)
        ckpt_free(j);
    else
        *out = j;
    return rc;
}

void fsdp_join_free(struct fsdp_join *j)
{
    if (!j)
        return;
    ckpt_map_free(j->by_path);
    ckpt_arena_release(&j->arena);
    ckpt_free(j->piece);
    ckpt_free(j->item);
    ckpt_free(j);
}

bool fsdp_join_is_local(const struct fsdp_join *j) { return j->local; }

/* Index of the item at a path. */
static int item_at(struct fsdp_join *j, size_t *out, const struct fsdp_piece *p,
                   struct ckpt_err *err)
{
    size_t len;
    char *key = dcp_names_key(&j->arena, p->part, p->n_part, &len);
    int rc;

    if (!key)
        return ckpt_nomem(err, len);
    *out = ckpt_map_get(j->by_path, key, len);
    if (*out != CKPT_MAP_NONE)
        return 0;
    if ((rc = ckpt_reserve(&j->item, j->n_item, &j->cap_item, sizeof *j->item, err)) != 0)
        return rc;
    *out = j->n_item;
    j->item[j->n_item] = (struct dcp_item){.part = p->part, .n_part = p->n_part,
                                           .tensor = !p->marker};
    return ckpt_map_add(j->by_path, key, len, j->n_item++, err);
}

int fsdp_join_rank(struct fsdp_join *j, const struct fsdp_rank *rank, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < rank->n; i++) {
        size_t k = 0;

        if ((rc = item_at(j, &k, &rank->item[i], err)) != 0 ||
            (rc = ckpt_reserve(&j->piece, j->n, &j->cap, sizeof *j->piece, err)) != 0)
            return rc;
        if (!rank->item[i].marker)
            j->piece[j->n++] = (struct owned){rank->item[i], k, j->ranks};
    }
    j->local = j->local || rank->local;
    j->ranks++;
    return 0;
}

static int by_tensor(const void *a, const void *b)
{
    const struct owned *x = a, *y = b;

    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* -- one tensor of pieces o[0..n) ------------------------------------------------------------ */

struct lister {
    struct fsdp_join         *j;
    struct ckpt_tensors      *list;
    const struct ckpt_source *shapes;
    struct ckpt_err          *err;
};

/* Whether all ranks agree on the tensor. */
static bool agree(const struct owned *o, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (o[i].p.plain != o[0].p.plain || o[i].p.dtype != o[0].p.dtype ||
            !ckpt_shape_equal(&o[i].p.shape, &o[0].p.shape))
            return false;
    return true;
}

/* Fragments of the pieces that have elements; of a plain tensor, only the first rank's. */
static int add_boxes(struct lister *l, const struct dcp_item *it, const struct owned *o, size_t n)
{
    struct ckpt_fragment *frag = ckpt_arena_alloc(&l->list->arena, n, sizeof *frag);
    struct ckpt_tensor *added;
    size_t used = 0;
    int rc;

    if (!frag)
        return ckpt_nomem(l->err, n * sizeof *frag);
    if (!agree(o, n))
        return ckpt_fail(l->err, CKPT_EFORMAT, "%s: is not alike on all ranks, and nothing says "
                         "how it is cut", it->name);
    for (size_t i = 0; i < (o->p.plain ? 1 : n); i++)
        if (o[i].p.frag.file)
            frag[used++] = o[i].p.frag;
    if ((rc = boxes_add(l->list, &added, it->name, o->p.dtype, &o->p.shape, frag, used, true,
                        l->err)) != 0)
        return rc;
    added->kind = it->kind;
    return 0;
}

/* The tensor in l->shapes for a name's parameter; NULL. */
static const struct ckpt_tensor *known(struct lister *l, const char *name)
{
    const char *bar = strrchr(name, '|');
    char *param = ckpt_arena_strndup(&l->j->arena, name, bar ? (size_t)(bar - name) : strlen(name));
    size_t i = param ? ckpt_source_find(l->shapes, param) : SIZE_MAX;

    return i == SIZE_MAX ? NULL : ckpt_source_tensor(l->shapes, i);
}

/* Runs of a flattened parameter, concatenated in rank order. */
static int add_runs(struct lister *l, const struct dcp_item *it, const struct owned *o, size_t n,
                    const struct ckpt_shape *shape)
{
    struct ckpt_fragment *frag = ckpt_arena_alloc(&l->list->arena, n, sizeof *frag);
    struct ckpt_shape flat;
    struct ckpt_tensor *added;
    int64_t at = 0, numel;
    size_t used = 0;
    int rc;

    if (!frag)
        return ckpt_nomem(l->err, n * sizeof *frag);
    for (size_t i = 0; i < n; i++) {
        if (o[i].p.shape.rank != 1 || o[i].p.dtype != o->p.dtype)
            return ckpt_fail(l->err, CKPT_EFORMAT, "%s: no run of a flattened parameter", it->name);
        if (o[i].p.frag.file) {
            frag[used] = o[i].p.frag;
            frag[used].box = ckpt_fragment_box(&l->list->arena, 1, &at, o[i].p.shape.dim);
            if (!frag[used++].box)
                return ckpt_nomem(l->err, sizeof *frag->box);
        }
        if (__builtin_add_overflow(at, o[i].p.shape.dim[0], &at))
            return ckpt_fail(l->err, CKPT_EFORMAT, "%s: its size overflows", it->name);
    }
    if (!ckpt_shape_numel(&numel, shape) || numel != at)
        return ckpt_fail(l->err, CKPT_EMISMATCH, "%s: ranks hold %lld elements of it, the base's "
                         "has %lld", it->name, (long long)at, (long long)numel);
    if ((rc = ckpt_tensors_add(l->list, &added, it->name, strlen(it->name), o->p.dtype, shape,
                               frag, used, true, l->err)) != 0)
        return rc;
    added->kind = it->kind;
    flat = ckpt_shape_1d(numel);
    return ckpt_fragment_check(&flat, o->p.dtype, frag, used, l->err)
               ? ckpt_err_in(l->err, "%s", it->name) : 0;
}

/* In a LOCAL set flat_param repeats the runs, buffers are complete, and the rest are runs. */
static int add_local(struct lister *l, const struct dcp_item *it, const struct owned *o, size_t n)
{
    const struct ckpt_tensor *base;
    bool whole = true;

    if (!o->p.plain)
        return 0;
    if (o->p.shape.rank == 0)
        return add_boxes(l, it, o, n);
    base = known(l, it->name);
    if (!base)
        return ckpt_fail_as(l->err, CKPT_EMISMATCH, "missing",
                            "%s: is not in the base, which must give its shape", it->name);
    for (size_t i = 0; i < n; i++)
        whole = whole && ckpt_shape_equal(&o[i].p.shape, &base->shape);
    return whole ? add_boxes(l, it, o, n) : add_runs(l, it, o, n, &base->shape);
}

/* LOCAL without use_orig_params: only flat_param has the parameters, and their names are
 * nowhere. */
static int check_local(const struct lister *l)
{
    bool flat = false, named = false;

    for (size_t i = 0; i < l->j->n; i++) {
        flat = flat || !l->j->piece[i].p.plain;
        named = named || (l->j->piece[i].p.plain && l->j->piece[i].p.shape.rank == 1);
    }
    if (flat && !named)
        return ckpt_fail(l->err, CKPT_EUNSUPPORTED, "flattened parameters without their names: "
                         "they were saved without use_orig_params");
    if (l->shapes)
        return 0;
    ckpt_fail(l->err, CKPT_EUNSUPPORTED, "flattened parameters: their shapes are not in the files");
    return ckpt_err_hint(l->err, "--base MODEL gives the shapes: any checkpoint of the same model");
}

/* Several ranks with plain tensors only: each rank may have its own, or all the same. */
static int check_sharded(const struct lister *l)
{
    if (l->j->ranks < 2)
        return 0;
    for (size_t i = 0; i < l->j->n; i++)
        if (!l->j->piece[i].p.plain)
            return 0;
    return ckpt_fail(l->err, CKPT_EUNSUPPORTED, "no sharded tensor in the files of %zu ranks: "
                     "which part a rank has is not said", l->j->ranks);
}

int fsdp_join_list(struct fsdp_join *j, struct ckpt_tensors *list, bool optimizer,
                   const struct ckpt_source *shapes, struct ckpt_err *err)
{
    struct lister l = {.j = j, .list = list, .shapes = shapes, .err = err};
    int rc = j->local ? check_local(&l) : check_sharded(&l);

    if (rc == 0)
        rc = dcp_names_fill(j->item, j->n_item, &j->arena, err);
    optimizer = optimizer || !dcp_names_weights(j->item, j->n_item);
    if (rc == 0 && j->n)
        qsort(j->piece, j->n, sizeof *j->piece, by_tensor);
    for (size_t i = 0, k; rc == 0 && i < j->n; i = k) {
        const struct dcp_item *it = &j->item[j->piece[i].tensor];

        for (k = i + 1; k < j->n && j->piece[k].tensor == j->piece[i].tensor;)
            k++;
        if (!optimizer && it->kind != CKPT_WEIGHT)
            continue;
        rc = j->local ? add_local(&l, it, &j->piece[i], k - i)
                      : add_boxes(&l, it, &j->piece[i], k - i);
    }
    return rc;
}
