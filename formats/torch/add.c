/* torch/add - see torch/add.h. */
#include "formats/torch/add.h"

#include <string.h>

#include "formats/torch/shard.h"
#include "formats/torch/unread.h"
#include "libckpt/base/map.h"
#include "libckpt/err.h"

bool torch_add_is(const struct value *v)
{
    return v->kind == VALUE_TENSOR ||
           (v->kind == VALUE_OBJECT &&
            (torch_shard_is(v) || torch_array_is(v) || torch_unread_is(v)));
}

static int add_inner(struct torch_adder *to, const struct torch_inner *in, struct ckpt_err *err)
{
    if (ckpt_reserve(&to->inner, to->n_inner, &to->cap_inner, sizeof *to->inner, err))
        return CKPT_ENOMEM;
    to->inner[to->n_inner++] = *in;
    return 0;
}

/* Append a tensor under a name; *added stays valid until the next. */
static int append(struct torch_adder *to, struct ckpt_tensor **added, const char *name, size_t len,
                  enum ckpt_dtype dtype, const struct ckpt_shape *shape,
                  const struct ckpt_fragment *frag, struct ckpt_err *err)
{
    int rc = ckpt_tensors_add(to->list, added, name, len, dtype, shape, frag, frag != NULL, false,
                              err);

    if (rc == 0)
        (*added)->kind = to->kind;
    return rc;
}

/* Windows with all of these equal are the same. */
struct window {
    uint64_t storage, dtype, rank, bits, quantizer;
    int64_t  offset, dim[CKPT_MAX_RANK], stride[CKPT_MAX_RANK];
};

static int find_alias(struct torch_adder *to, const struct value_tensor *t, size_t *alias_of,
                      struct ckpt_err *err)
{
    struct window *w = ckpt_arena_alloc(&to->list->arena, 1, sizeof *w);
    size_t before;

    if (!w)
        return ckpt_nomem(err, sizeof *w);
    w->storage = t->storage;
    w->dtype = t->dtype;
    w->rank = (uint64_t)t->shape.rank;
    w->bits = (uint64_t)t->negated | (uint64_t)t->conjugated << 1;
    w->quantizer = (uintptr_t)t->quantizer;
    w->offset = t->offset;
    for (int i = 0; i < t->shape.rank; i++) {
        w->dim[i] = t->shape.dim[i];
        w->stride[i] = t->stride[i];
    }
    before = ckpt_map_get(to->seen, (const char *)w, sizeof *w);
    if (before != CKPT_MAP_NONE) {
        *alias_of = before;
        return 0;
    }
    return ckpt_map_add(to->seen, (const char *)w, sizeof *w, to->list->n - 1, err);
}

/* Listed as F32 values; with a scheme that is not read, only listed. */
static int add_quantised(struct torch_adder *to, const char *name, size_t len,
                         const struct value_tensor *t, struct ckpt_err *err)
{
    struct ckpt_arena *arena = &to->list->arena;
    struct torch_inner in = {.index = to->list->n};
    struct ckpt_tensor *added;
    const char *unread = NULL;
    int rc;

    in.affine = ckpt_arena_alloc(arena, 1, sizeof *in.affine);
    if (!in.affine)
        return ckpt_nomem(err, sizeof *in.affine);
    rc = torch_affine_read(in.affine, arena, to->a, t, err);
    if (rc == CKPT_EUNSUPPORTED) {
        unread = ckpt_arena_printf(arena, "%s", err->text);
        ckpt_err_clear(err);
        rc = unread ? 0 : ckpt_nomem(err, sizeof err->text);
    }
    if (rc == 0)
        rc = append(to, &added, name, len, CKPT_F32, &t->shape, NULL, err);
    if (rc)
        return rc;
    added->unread = unread;
    added->stored = ckpt_dtype_name(t->dtype);
    ckpt_shape_bytes(&added->stored_bytes, &t->shape, t->dtype);
    if (added->numel && (rc = find_alias(to, t, &added->alias_of, err)) != 0)
        return rc;
    return add_inner(to, &in, err);
}

static int add_window(struct torch_adder *to, const char *name, size_t len,
                      const struct value_tensor *t, struct ckpt_err *err)
{
    struct ckpt_fragment *f = NULL;
    struct ckpt_tensor *added;
    int64_t numel;
    int rc;

    if (t->quantizer)
        return add_quantised(to, name, len, t, err);
    if (!ckpt_shape_numel(&numel, &t->shape))
        return ckpt_fail(err, CKPT_EFORMAT, "a tensor's size overflows");
    if (numel > 0 && ckpt_dtype_size(t->dtype) > 0 &&
        (rc = torch_archive_fragment(&f, &to->list->arena, to->a, t, err)) != 0)
        return rc;
    if ((rc = append(to, &added, name, len, t->dtype, &t->shape, f, err)) != 0)
        return rc;
    return numel ? find_alias(to, t, &added->alias_of, err) : 0;
}

/* A sharded tensor: this file has all of it, or is one of a set. */
static int add_shard(struct torch_adder *to, const char *name, size_t len, const struct value *v,
                     struct ckpt_err *err)
{
    struct ckpt_tensor *added;
    struct torch_shard s;
    int64_t numel;
    int rc;

    if ((rc = torch_shard_read(&s, &to->list->arena, v, err)) != 0)
        return rc;
    if (s.n == 1 && ckpt_shape_equal(&s.shape, &s.piece[0].tensor->shape))
        return add_window(to, name, len, s.piece[0].tensor, err);
    if (s.n == 0 && ckpt_shape_numel(&numel, &s.shape) && numel == 0)
        return append(to, &added, name, len, s.dtype, &s.shape, NULL, err);
    ckpt_fail(err, CKPT_EUNSUPPORTED, "one rank's part of a sharded tensor");
    return ckpt_err_hint(err, "a directory that holds the files of all ranks is read as one");
}

/* An array whose elements have no dtype here is a value, not a tensor. */
static int add_array(struct torch_adder *to, const char *name, size_t len, const struct value *v,
                     struct ckpt_err *err)
{
    struct torch_inner in = {.index = to->list->n};
    struct ckpt_tensor *added;
    int rc = torch_array_read(&in.array, v, err);

    if (rc == CKPT_EUNSUPPORTED) {
        ckpt_err_clear(err);
        to->left_out++;
        return 0;
    }
    if (rc == 0)
        rc = append(to, &added, name, len, in.array.dtype, &in.array.shape, NULL, err);
    return rc ? rc : add_inner(to, &in, err);
}

static int add_unread(struct torch_adder *to, const char *name, size_t len, const struct value *v,
                      struct ckpt_err *err)
{
    struct torch_unread u;
    struct ckpt_tensor *added;
    char *kind;
    int rc;

    if ((rc = torch_unread_tell(&u, v, err)) != 0 ||
        (rc = append(to, &added, name, len, u.dtype, &u.shape, NULL, err)) != 0)
        return rc;
    kind = ckpt_arena_printf(&to->list->arena, "%s", u.kind);
    added->stored = kind;
    added->stored_bytes = u.bytes;
    added->unread = ckpt_arena_printf(&to->list->arena, "of kind %s, which is not read", u.kind);
    return kind && added->unread ? 0 : ckpt_nomem(err, sizeof u.kind);
}

int torch_add(struct torch_adder *to, const char *name, size_t len, const struct value *v,
              struct ckpt_err *err)
{
    int rc;

    if (v->kind == VALUE_TENSOR)
        rc = add_window(to, name, len, v->u.tensor, err);
    else if (torch_array_is(v))
        rc = add_array(to, name, len, v, err);
    else
        rc = torch_shard_is(v) ? add_shard(to, name, len, v, err)
                               : add_unread(to, name, len, v, err);
    return rc && strncmp(err->text, "tensor ", 7) != 0
               ? ckpt_err_in(err, "tensor %.*s", (int)(len < 256 ? len : 256), name) : rc;
}
