/* torch/shard - see torch/shard.h. */
#include "formats/torch/shard.h"

#include <string.h>

#define MAX_MESH 8              /* axes of a device mesh */

/* An attribute: from the state, or from its second half for classes with slots. */
static const struct value *attr(const struct value *v, const char *name)
{
    const struct value *state = value_is(v, VALUE_OBJECT) ? v->u.obj.state : NULL;

    if (value_is(state, VALUE_TUPLE))
        state = value_item(state, 1);
    return value_get(state, name);
}

static const struct value *class_of(const struct value *v)
{
    return value_names(v, "torch._tensor", "_rebuild_from_type_v2") ||
                   value_names(v, "torch.tensor", "_rebuild_from_type_v2")
               ? value_arg(v, 1) : NULL;
}

static bool is_class(const struct value *v, const char *name)
{
    const struct value *class = class_of(v);

    return value_is(class, VALUE_GLOBAL) && strcmp(class->u.obj.name, name) == 0 &&
           strncmp(class->u.obj.module, "torch.distributed.", 18) == 0;
}

bool torch_shard_is(const struct value *v)
{
    return is_class(v, "DTensor") || is_class(v, "ShardedTensor");
}

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "a sharded tensor %s", what);
}

static int add_piece(struct torch_shard *s, struct ckpt_err *err, const int64_t *start,
                     const int64_t *count, const struct value *local)
{
    const struct value_tensor *t = value_is(local, VALUE_TENSOR) ? local->u.tensor : NULL;
    int64_t have;
    bool empty = false;

    if (!t || t->dtype != s->dtype)
        return bad(err, "has a piece that is no tensor of its dtype");
    for (int i = 0; i < s->shape.rank; i++)
        empty = empty || count[i] == 0;
    if (empty)
        return ckpt_shape_numel(&have, &t->shape) && have == 0
                   ? 0 : bad(err, "has a piece where none belongs");
    if (t->shape.rank != s->shape.rank)
        return bad(err, "has a piece with another number of axes");
    for (int i = 0; i < s->shape.rank; i++)
        if (t->shape.dim[i] != count[i] || start[i] > s->shape.dim[i] ||
            count[i] > s->shape.dim[i] - start[i])
            return bad(err, "has a piece of another size than its place");
    memcpy(s->piece[s->n].start, start, (size_t)s->shape.rank * sizeof *start);
    s->piece[s->n++].tensor = t;
    return 0;
}

/* -- ShardedTensor --------------------------------------------------------------------------- */

static int read_sharded(struct torch_shard *s, struct ckpt_arena *a, const struct value *state,
                        struct ckpt_err *err)
{
    const struct value *local = value_item(state, 0), *size = attr(value_item(state, 1), "size");
    const struct value *group = value_item(state, 2);
    int64_t whole[CKPT_MAX_RANK], start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
    int rank = s->shape.rank;
    int rc;

    if (!value_is(local, VALUE_LIST) || value_dims(size, whole, CKPT_MAX_RANK) != rank ||
        memcmp(whole, s->shape.dim, (size_t)rank * sizeof *whole) != 0)
        return bad(err, "says its size twice, and differently, or has no shards");
    if (!value_as_int(attr(group, "global_world_size"), &s->world))
        s->world = -1;
    if (!value_as_int(attr(group, "global_rank"), &s->rank))
        s->rank = -1;
    s->piece = ckpt_arena_alloc(a, local->u.seq.n + 1, sizeof *s->piece);
    if (!s->piece)
        return ckpt_nomem(err, local->u.seq.n * sizeof *s->piece);
    for (size_t i = 0; i < local->u.seq.n; i++) {
        const struct value *shard = local->u.seq.item[i], *place = attr(shard, "metadata");

        if (value_dims(attr(place, "shard_offsets"), start, CKPT_MAX_RANK) != rank ||
            value_dims(attr(place, "shard_sizes"), count, CKPT_MAX_RANK) != rank)
            return bad(err, "has a shard without offsets and sizes");
        if ((rc = add_piece(s, err, start, count, attr(shard, "tensor"))) != 0)
            return rc;
    }
    return 0;
}

/* -- DTensor --------------------------------------------------------------------------------- */

/* Sizes of the mesh's axes; their number, or -1. */
static int mesh_sizes(const struct value *mesh, int64_t size[MAX_MESH])
{
    const struct value *layout = attr(mesh, "_layout"), *axes = attr(layout, "axes");
    const struct value *ranks = attr(mesh, "mesh");
    int64_t part[MAX_MESH];
    int n;

    if (!axes && layout)
        return value_dims(attr(layout, "shape"), size, MAX_MESH);
    if (!axes && value_is(ranks, VALUE_TENSOR) && ranks->u.tensor->shape.rank <= MAX_MESH) {
        memcpy(size, ranks->u.tensor->shape.dim, sizeof ranks->u.tensor->shape.dim[0] *
                                                     (size_t)ranks->u.tensor->shape.rank);
        return ranks->u.tensor->shape.rank;
    }
    if (!value_is(axes, VALUE_TUPLE) && !value_is(axes, VALUE_LIST))
        return -1;
    for (size_t i = 0; i < axes->u.seq.n; i++) {
        n = i < MAX_MESH ? value_dims(attr(axes->u.seq.item[i], "shape"), part, MAX_MESH) : -1;
        if (n < 0)
            return -1;
        size[i] = 1;
        for (int k = 0; k < n; k++)
            if (__builtin_mul_overflow(size[i], part[k], &size[i]))
                return -1;
    }
    return (int)axes->u.seq.n;
}

/* Mesh axes that shard the same tensor axis must do so in order. */
static bool in_order(const struct value *order)
{
    int64_t axis[MAX_MESH];

    for (size_t i = 0; value_item(order, i); i++) {
        int n = value_dims(value_arg(value_item(order, i), 1), axis, MAX_MESH);

        if (n < 0)
            return false;
        for (int k = 1; k < n; k++)
            if (axis[k] < axis[k - 1])
                return false;
    }
    return true;
}

/* The placement of a mesh axis. */
struct placement {
    bool    shard, strided;
    int64_t dim, factor, size, at;
};

static int read_placement(struct placement *p, const struct value *v, int rank,
                          struct ckpt_err *err)
{
    const char *name = value_is(v, VALUE_OBJECT) ? v->u.obj.name : "what is no placement";

    if (strcmp(name, "Replicate") == 0)
        return 0;
    p->strided = strcmp(name, "_StridedShard") == 0;
    p->shard = p->strided || strcmp(name, "Shard") == 0;
    if (!p->shard)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "placed by %s, which is not read", name);
    if (!value_as_int(attr(v, "dim"), &p->dim) || p->dim < -rank || p->dim >= rank)
        return bad(err, "is cut along an axis that it has not");
    p->dim += p->dim < 0 ? rank : 0;
    return p->strided && !value_as_int(attr(v, "split_factor"), &p->factor)
               ? bad(err, "is cut in strides of no number") : 0;
}

/* A rank's part of the remainder of an axis, as torch.chunk computes it. */
static void cut(const struct placement *p, int64_t *start, int64_t *count)
{
    int64_t left = count[p->dim], step = left / p->size + (left % p->size != 0);
    int64_t skip = p->at > 0 && step > left / p->at ? left : p->at * step;

    start[p->dim] += skip;
    count[p->dim] = step < left - skip ? step : left - skip;
}

/* Whether strided axis k is split by exactly the plain ones after it: then the result is a box. */
static bool is_box(const struct placement *p, int n, int k)
{
    int64_t after = 1;

    for (int i = 0; i < n; i++)
        if (i != k && p[i].shard && p[i].dim == p[k].dim) {
            if (p[i].strided || i < k || __builtin_mul_overflow(after, p[i].size, &after))
                return false;
        }
    return after == p[k].factor;
}

/* The box after all axes; copy: an earlier rank has it too. */
static int place_all(const struct placement *p, int n, int64_t *start, int64_t *count, bool *copy,
                     struct ckpt_err *err)
{
    for (int i = 0; i < n; i++) {
        *copy = *copy || (!p[i].shard && p[i].at > 0);
        if (p[i].shard && !p[i].strided)
            cut(&p[i], start, count);
    }
    for (int i = 0; i < n; i++) {
        if (!p[i].strided)
            continue;
        if (!is_box(p, n, i))
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "cut in strides that make no boxes, which is "
                             "not read");
        cut(&p[i], start, count);
    }
    return 0;
}

static int read_dtensor(struct torch_shard *s, struct ckpt_arena *a, const struct value *state,
                        struct ckpt_err *err)
{
    const struct value *parts = value_is(state, VALUE_TUPLE) ? value_item(state, 1) : state;
    const struct value *spec = value_get(parts, "_spec"), *mesh = attr(spec, "mesh");
    const struct value *placements = attr(spec, "placements"), *order = attr(spec, "shard_order");
    int64_t size[MAX_MESH], at[MAX_MESH], start[CKPT_MAX_RANK] = {0}, count[CKPT_MAX_RANK];
    struct placement p[MAX_MESH];
    int n = mesh_sizes(mesh, size);
    bool copy = false;
    int rc;

    if (n < 0 || value_dims(attr(mesh, "_coordinate_on_dim"), at, MAX_MESH) != n ||
        !value_is(placements, VALUE_TUPLE) || placements->u.seq.n != (size_t)n)
        return bad(err, "has no mesh, no place in it, or not one placement an axis");
    if (!in_order(order))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "cut in another order than the mesh's, which is "
                         "not read");
    memcpy(count, s->shape.dim, sizeof count);
    s->world = 1;
    for (int i = 0; i < n; i++) {
        p[i] = (struct placement){.size = size[i], .at = at[i]};
        if (at[i] >= size[i] || __builtin_mul_overflow(s->world, size[i], &s->world))
            return bad(err, "lies outside its mesh");
        if ((rc = read_placement(&p[i], placements->u.seq.item[i], s->shape.rank, err)) != 0)
            return rc;
    }
    rc = place_all(p, n, start, count, &copy, err);
    if (rc || copy)
        return copy ? 0 : rc;
    s->piece = ckpt_arena_alloc(a, 1, sizeof *s->piece);
    return s->piece ? add_piece(s, err, start, count, value_get(parts, "_local_tensor"))
                    : ckpt_nomem(err, sizeof *s->piece);
}

int torch_shard_read(struct torch_shard *out, struct ckpt_arena *a, const struct value *v,
                     struct ckpt_err *err)
{
    const struct value *args = value_arg(v, 2), *dtype = value_item(args, 1);

    memset(out, 0, sizeof *out);
    out->world = out->rank = -1;
    out->dtype = value_is(dtype, VALUE_GLOBAL) ? ckpt_dtype_parse(dtype->u.obj.name)
                                               : CKPT_DTYPE_NONE;
    out->shape.rank = value_dims(value_item(args, 2), out->shape.dim, CKPT_MAX_RANK);
    if (out->dtype == CKPT_DTYPE_NONE || out->shape.rank < 0)
        return bad(err, "has no dtype or size");
    return is_class(v, "DTensor") ? read_dtensor(out, a, value_arg(v, 3), err)
                                  : read_sharded(out, a, value_arg(v, 3), err);
}
