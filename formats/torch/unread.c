/* torch/unread - see torch/unread.h. */
#include "formats/torch/unread.h"

#include <stdio.h>
#include <string.h>

#include "formats/torch/array.h"
#include "formats/torch/names.h"
#include "libckpt/err.h"

#define MAX_WRAPS 8             /* nested calls; resolving has the same limit */

bool torch_unread_is(const struct value *v)
{
    const struct torch_name *row = value_is(v, VALUE_OBJECT) && !v->u.obj.callee
                                       ? torch_name_find(v->u.obj.module, v->u.obj.name) : NULL;

    return row && row->what >= NAME_UNREAD;
}

static bool take_shape(struct ckpt_shape *out, const struct value *v)
{
    out->rank = value_dims(v, out->dim, CKPT_MAX_RANK);
    return out->rank >= 0;
}

/* torch.float32, or FloatStorage: a name that is a dtype's. */
static void take_dtype(struct torch_unread *u, const struct value *v, bool name_it)
{
    size_t n;

    if (!value_is(v, VALUE_GLOBAL))
        return;
    u->dtype = ckpt_dtype_parse(v->u.obj.name);
    n = strlen(v->u.obj.name);
    if (n > 7 && strcmp(v->u.obj.name + n - 7, "Storage") == 0)
        n -= 7;
    if (name_it)
        snprintf(u->kind, sizeof u->kind, "%.*s", (int)(n < 60 ? n : 60), v->u.obj.name);
}

static void add_bytes(struct torch_unread *u, const struct value *v)
{
    uint64_t bytes;

    if (value_is(v, VALUE_TENSOR) &&
        ckpt_shape_bytes(&bytes, &v->u.tensor->shape, v->u.tensor->dtype))
        u->bytes += bytes;
}

/* The layout's own name: sparse_coo.  The size follows the values. */
static bool tell_sparse(struct torch_unread *u, const struct value *args)
{
    const struct value *layout = value_item(args, 0), *data = value_item(args, 1), *values;
    const char *name = value_as_str(value_arg(layout, 0));
    size_t at;

    if (!name || strncmp(name, "torch.sparse_", 13) != 0)
        return false;
    snprintf(u->kind, sizeof u->kind, "%.60s", name + 6);
    at = strcmp(u->kind, "sparse_coo") == 0 ? 1 : 2;
    values = value_item(data, at);
    if (!value_is(values, VALUE_TENSOR))
        return false;
    u->dtype = values->u.tensor->dtype;
    for (size_t i = 0; i <= at; i++)
        add_bytes(u, value_item(data, i));
    return take_shape(&u->shape, value_item(data, at + 1));
}

static bool tell_nested(struct torch_unread *u, const struct value *args)
{
    const struct value *buffer = value_item(args, 0);

    if (!value_is(buffer, VALUE_TENSOR))
        return false;
    snprintf(u->kind, sizeof u->kind, "nested");
    u->dtype = buffer->u.tensor->dtype;
    u->shape = buffer->u.tensor->shape;
    for (size_t i = 0; i < 4; i++)
        add_bytes(u, value_item(args, i));
    return true;
}

/* (tensor or array, dtype, device, ...) */
static bool tell_device(struct torch_unread *u, const struct value *args)
{
    const struct value *inner = value_item(args, 0);
    struct ckpt_err ignored = {0};
    struct torch_array a;

    snprintf(u->kind, sizeof u->kind, "device tensor");
    take_dtype(u, value_item(args, 1), false);
    if (value_is(inner, VALUE_TENSOR)) {
        u->shape = inner->u.tensor->shape;
        add_bytes(u, inner);
        return true;
    }
    if (!torch_array_is(inner) || torch_array_read(&a, inner, &ignored))
        return false;
    u->shape = a.shape;
    u->bytes = a.n_bytes;
    return true;
}

/* A window on a storage: it is not read because of its dtype, or of a bit in its metadata. */
static bool tell_window(struct torch_unread *u, const struct value *args, bool typed)
{
    const struct value *pid = value_item(args, 0);
    const struct value *id, *class;
    int64_t numel;

    if (!value_is(pid, VALUE_PERSISTENT))
        return false;
    id = pid->u.seq.item[0];
    class = value_item(id, 1);
    take_dtype(u, typed ? value_item(args, 6) : class, true);
    if (u->dtype != CKPT_DTYPE_NONE)
        snprintf(u->kind, sizeof u->kind, "%s, conjugate or negative", ckpt_dtype_name(u->dtype));
    if (!u->kind[0] || !take_shape(&u->shape, value_item(args, 2)))
        return false;
    /* For elements of unknown width, all bytes of its storage. */
    if (u->dtype != CKPT_DTYPE_NONE)
        return ckpt_shape_bytes(&u->bytes, &u->shape, u->dtype);
    u->bytes = value_as_int(value_item(id, 4), &numel) && numel > 0 ? (uint64_t)numel : 0;
    return true;
}

static bool tell_call(struct torch_unread *u, const char *name, const struct value *args)
{
    if (strcmp(name, "_rebuild_sparse_tensor") == 0)
        return tell_sparse(u, args);
    if (strcmp(name, "_rebuild_nested_tensor") == 0)
        return tell_nested(u, args);
    if (strncmp(name, "_rebuild_device_tensor", 22) == 0 ||
        strcmp(name, "_rebuild_xla_tensor") == 0)
        return tell_device(u, args);
    if (strncmp(name, "_rebuild_tensor", 15) == 0 || strcmp(name, "_rebuild_qtensor") == 0)
        return tell_window(u, args, strcmp(name, "_rebuild_tensor_v3") == 0);
    if (strcmp(name, "_rebuild_meta_tensor_no_storage") == 0) {
        snprintf(u->kind, sizeof u->kind, "meta");
        take_dtype(u, value_item(args, 0), false);
        return take_shape(&u->shape, value_item(args, 1));
    }
    if (strcmp(name, "_rebuild_wrapper_subclass") == 0) {
        take_dtype(u, value_item(args, 0), true);
        take_dtype(u, value_item(args, 1), false);
        return u->kind[0] && take_shape(&u->shape, value_item(args, 2));
    }
    return false;
}

int torch_unread_tell(struct torch_unread *out, const struct value *v, struct ckpt_err *err)
{
    const char *name = v->u.obj.name;
    const struct value *args = v->u.obj.args, *class = v;
    bool told = false;

    memset(out, 0, sizeof *out);
    for (int wraps = 0; wraps < MAX_WRAPS && name; wraps++) {
        const struct value *inner = value_item(args, 0);

        if (strncmp(name, "_rebuild_from_type", 18) == 0) {
            if (value_is(value_item(args, 1), VALUE_GLOBAL))
                class = value_item(args, 1);
            name = value_is(inner, VALUE_GLOBAL) ? inner->u.obj.name : NULL;
            args = value_item(args, 2);
        } else if (strncmp(name, "_rebuild_parameter", 18) == 0) {
            name = value_is(inner, VALUE_OBJECT) ? inner->u.obj.name : NULL;
            args = name ? inner->u.obj.args : NULL;
        } else {
            told = tell_call(out, name, args);
            break;
        }
    }
    if (out->dtype == CKPT_DTYPE_NONE)
        out->dtype = CKPT_U8;
    return told ? 0 : ckpt_fail(err, CKPT_EUNSUPPORTED, "of kind %s.%s, which is not read",
                                class->u.obj.module, class->u.obj.name);
}
