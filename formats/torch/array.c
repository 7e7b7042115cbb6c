/* torch/array - see torch/array.h. */
#include "formats/torch/array.h"

#include <string.h>

#include "libckpt/fragment.h"

static bool is_call(const struct value *v, const char *module, const char *old, const char *name)
{
    return value_is(v, VALUE_OBJECT) && !v->u.obj.callee &&
           (value_names(v, module, name) || value_names(v, old, name));
}

static bool is_reconstruct(const struct value *v)
{
    return is_call(v, "numpy._core.multiarray", "numpy.core.multiarray", "_reconstruct");
}

static bool is_frombuffer(const struct value *v)
{
    return is_call(v, "numpy._core.numeric", "numpy.core.numeric", "_frombuffer");
}

bool torch_array_is(const struct value *v) { return is_reconstruct(v) || is_frombuffer(v); }

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "numpy array: %s", what);
}

/* dtype(code, False, True) and the byte order in its state. */
static int read_dtype(struct torch_array *a, const struct value *v, struct ckpt_err *err)
{
    static const struct { const char *code; enum ckpt_dtype dtype; } rows[] = {
        {"b1", CKPT_BOOL}, {"i1", CKPT_I8},  {"u1", CKPT_U8},  {"i2", CKPT_I16}, {"u2", CKPT_U16},
        {"i4", CKPT_I32},  {"u4", CKPT_U32}, {"i8", CKPT_I64}, {"u8", CKPT_U64}, {"f2", CKPT_F16},
        {"f4", CKPT_F32},  {"f8", CKPT_F64}, {"c8", CKPT_C64}, {"c16", CKPT_C128},
    };
    const char *code, *order;

    if (!value_is(v, VALUE_OBJECT) || !value_names(v, "numpy", "dtype"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "numpy array: its elements are of no dtype that "
                         "is read");
    code = value_as_str(value_arg(v, 0));
    order = value_as_str(value_item(v->u.obj.state, 1));
    if (!code)
        return bad(err, "its dtype has no code");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].code, code) == 0)
            a->dtype = rows[i].dtype;
    if (a->dtype == CKPT_DTYPE_NONE)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "numpy array: elements of type %.20s are not "
                         "read", code);
    a->swapped = order && strcmp(order, ">") == 0;
    return 0;
}

static int read_shape(struct ckpt_shape *out, const struct value *v, struct ckpt_err *err)
{
    out->rank = value_dims(v, out->dim, CKPT_MAX_RANK);
    if (out->rank == VALUE_MANY_DIMS)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "numpy array: more than %d axes", CKPT_MAX_RANK);
    return out->rank < 0 ? bad(err, "its shape is no tuple of numbers >= 0") : 0;
}

/* Strides of an array whose first or last axis is innermost. */
static void set_strides(struct torch_array *a, bool fortran)
{
    int64_t step = 1;

    for (int k = 0; k < a->shape.rank; k++) {
        int i = fortran ? k : a->shape.rank - 1 - k;

        a->stride[i] = step;
        step *= a->shape.dim[i];
    }
}

/* Permute the axes. */
static int permute(struct torch_array *a, const struct value *axes, struct ckpt_err *err)
{
    struct torch_array lies = *a;
    unsigned seen = 0;

    if (!value_is(axes, VALUE_TUPLE) || axes->u.seq.n != (size_t)a->shape.rank)
        return bad(err, "the order of its axes is no tuple as long as its shape");
    for (int i = 0; i < a->shape.rank; i++) {
        int64_t k;

        if (!value_as_int(value_item(axes, (size_t)i), &k) || k < 0 || k >= a->shape.rank ||
            (seen & 1u << k))
            return bad(err, "the order of its axes is none");
        seen |= 1u << k;
        a->shape.dim[i] = lies.shape.dim[k];
        a->stride[i] = lies.stride[k];
    }
    return 0;
}

int torch_array_read(struct torch_array *out, const struct value *v, struct ckpt_err *err)
{
    bool buffer = is_frombuffer(v);
    const struct value *from = buffer ? v->u.obj.args : v->u.obj.state, *bytes, *fortran, *axes;
    const char *order;
    uint64_t n;
    int rc;

    memset(out, 0, sizeof *out);
    bytes = value_item(from, buffer ? 0 : 4);
    fortran = value_item(from, 3);
    axes = value_item(from, 4);
    order = buffer ? value_as_str(fortran) : value_is(fortran, VALUE_BOOL) && fortran->u.b
                                                  ? "F" : "C";
    if ((rc = read_dtype(out, value_item(from, buffer ? 1 : 2), err)) != 0 ||
        (rc = read_shape(&out->shape, value_item(from, buffer ? 2 : 1), err)) != 0)
        return rc;
    if (!value_is(bytes, VALUE_BYTES) || !ckpt_shape_bytes(&n, &out->shape, out->dtype) ||
        n != bytes->u.text.n)
        return bad(err, "its bytes do not fill its shape");
    out->bytes = bytes->u.text.p;
    out->n_bytes = bytes->u.text.n;
    if (!order || strlen(order) != 1 || !strchr("CFK", *order))
        return bad(err, "the order of its elements is none of C, F and K");
    if (n > 0)                          /* otherwise dims beside a 0 may be anything */
        set_strides(out, *order == 'F');
    return *order == 'K' && axes ? permute(out, axes, err) : 0;
}

int torch_array_gather(void *dst, const struct torch_array *a, int64_t start, int64_t count,
                       struct ckpt_err *err)
{
    struct ckpt_fragment f = {.stride = a->stride};
    struct ckpt_file *file;
    int rc = ckpt_file_memory(&file, a->bytes, a->n_bytes, "pickle", err);

    if (rc)
        return rc;
    f.file = file;
    f.swapped = a->swapped && ckpt_dtype_size(a->dtype) > 1;
    rc = ckpt_fragment_gather(dst, &a->shape, a->dtype, &f, 1, start, count, err);
    ckpt_file_close(file);
    return rc;
}
