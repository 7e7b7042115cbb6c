/* torch/affine - see torch/affine.h. */
#include "formats/torch/affine.h"

#include <string.h>

#include "libckpt/convert.h"

#define PIECE        4096               /* codes dequantised at a time */
#define MAX_CHANNELS ((int64_t)1 << 22) /* channels whose scales are held in one read */

static int bad(struct ckpt_err *err, const char *what)
{
    return ckpt_fail(err, CKPT_EFORMAT, "a quantised tensor of torch: %s", what);
}

/* v as n numbers. */
static int take_numbers(struct torch_affine_numbers *out, struct ckpt_arena *arena,
                        const struct torch_archive *a, const struct value *v, int64_t n,
                        struct ckpt_err *err)
{
    struct ckpt_fragment *f;
    const struct value_tensor *t;
    double number;
    int rc;

    out->value = v;
    if (value_is(v, VALUE_LIST)) {
        for (size_t i = 0; i < v->u.seq.n; i++)
            if (!value_as_float(v->u.seq.item[i], &number))
                return bad(err, "a scale or zero point is no number");
        return v->u.seq.n == (uint64_t)n ? 0 : bad(err, "not one scale and zero point a channel");
    }
    if (!value_is(v, VALUE_TENSOR))
        return bad(err, "its scales or zero points are no tensor");
    t = v->u.tensor;
    if (t->quantizer || ckpt_dtype_size(t->dtype) == 0 || ckpt_dtype_size(t->dtype) > 8 ||
        !ckpt_convert_can(CKPT_F64, t->dtype))
        return bad(err, "its scales or zero points are of a dtype without numbers");
    if (t->shape.rank != 1 || t->shape.dim[0] != n)
        return bad(err, "not one scale and zero point a channel");
    if (n == 0)
        return 0;
    if ((rc = torch_archive_fragment(&f, arena, a, t, err)) != 0)
        return rc;
    out->frag = f;
    return 0;
}

static int take_channels(struct torch_affine *out, const struct value *axis, struct ckpt_err *err)
{
    int64_t k;

    if (!value_as_int(axis, &k) || k < 0 || k >= out->shape.rank)
        return bad(err, "its channels lie along no axis that it has");
    out->channels = out->shape.dim[k];
    for (int i = (int)k + 1; i < out->shape.rank; i++)
        out->inner *= out->shape.dim[i];    /* cannot overflow: at most numel, unless that is 0 */
    return 0;
}

int torch_affine_read(struct torch_affine *out, struct ckpt_arena *arena,
                      const struct torch_archive *a, const struct value_tensor *t,
                      struct ckpt_err *err)
{
    const struct value *q = t->quantizer, *scheme = value_item(q, 0);
    struct ckpt_fragment *f = NULL;
    int64_t numel;
    double number;
    int rc;

    *out = (struct torch_affine){.shape = t->shape, .codes = t->dtype, .channels = 1, .inner = 1};
    if (!value_is(scheme, VALUE_GLOBAL))
        return bad(err, "its quantizer has no scheme");
    if (!ckpt_shape_numel(&numel, &t->shape))
        return bad(err, "its size overflows");
    if (numel > 0 && (rc = torch_archive_fragment(&f, arena, a, t, err)) != 0)
        return rc;
    out->frag = f;
    out->scale.value = value_item(q, 1);
    out->zero.value = value_item(q, 2);
    if (value_names(scheme, "torch", "per_tensor_affine"))
        return value_as_float(out->scale.value, &number) && value_as_float(out->zero.value, &number)
                   ? 0 : bad(err, "its scale or zero point is no number");
    if (!value_names(scheme, "torch", "per_channel_affine") &&
        !value_names(scheme, "torch", "per_channel_affine_float_qparams"))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "a quantised tensor of torch, %.40s, which is "
                         "not read", scheme->u.obj.name);
    rc = numel > 0 ? take_channels(out, value_item(q, 3), err) : 0;
    if (rc == 0 && numel > 0)
        rc = take_numbers(&out->scale, arena, a, value_item(q, 1), out->channels, err);
    if (rc == 0 && numel > 0)
        rc = take_numbers(&out->zero, arena, a, value_item(q, 2), out->channels, err);
    return rc;
}

/* Numbers [start, start + n) of all channels' numbers. */
static int load(double *dst, const struct torch_affine_numbers *from, int64_t start, int64_t n,
                struct ckpt_err *err)
{
    const struct value_tensor *t;
    unsigned char raw[PIECE];
    int64_t per;
    int rc;

    if (!from->frag) {
        const struct value *v = from->value;

        for (int64_t i = 0; i < n; i++)
            value_as_float(value_is(v, VALUE_LIST) ? v->u.seq.item[start + i] : v, &dst[i]);
        return 0;
    }
    t = from->value->u.tensor;
    per = PIECE / (int64_t)ckpt_dtype_size(t->dtype);
    for (int64_t i = 0; i < n; i += per) {
        int64_t some = n - i < per ? n - i : per;

        if ((rc = ckpt_fragment_gather(raw, &t->shape, t->dtype, from->frag, 1, start + i, some,
                                       err)) != 0)
            return rc;
        ckpt_convert(dst + i, CKPT_F64, raw, t->dtype, (size_t)some);
    }
    return 0;
}

static double code_at(const unsigned char *raw, enum ckpt_dtype t, int64_t i)
{
    int32_t wide;

    if (t == CKPT_QI8)
        return (int8_t)raw[i];
    if (t == CKPT_QU8)
        return raw[i];
    memcpy(&wide, raw + 4 * i, sizeof wide);
    return wide;
}

/* Dequantise the pieces of a range; scale and zero begin with channel `first`. */
static int work_out(float *dst, const struct torch_affine *a, int64_t start, int64_t count,
                    const double *scale, const double *zero, int64_t first, struct ckpt_err *err)
{
    unsigned char raw[4 * PIECE];
    int rc;

    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t n = count - at < PIECE ? count - at : PIECE;

        if ((rc = ckpt_fragment_gather(raw, &a->shape, a->codes, a->frag, 1, start + at, n,
                                       err)) != 0)
            return rc;
        for (int64_t i = 0; i < n; i++) {
            int64_t k = (start + at + i) / a->inner % a->channels - first;

            dst[at + i] = (float)(code_at(raw, a->codes, i) - zero[k]) * (float)scale[k];
        }
    }
    return 0;
}

int torch_affine_gather(float *dst, const struct torch_affine *a, int64_t start, int64_t count,
                        struct ckpt_err *err)
{
    int64_t from = start / a->inner, to = (start + count - 1) / a->inner, first = 0;
    int64_t n = a->channels;
    double *numbers;
    int rc;

    if (from / n == to / n) {           /* only some channels are touched */
        first = from % n;
        n = to - from + 1;
    }
    if (n > MAX_CHANNELS)
        return ckpt_fail(err, CKPT_ELIMIT, "a quantised tensor of torch: %lld scales at once, "
                         "%lld at most", (long long)n, (long long)MAX_CHANNELS);
    numbers = ckpt_alloc(2 * (size_t)n, sizeof *numbers);
    if (!numbers)
        return ckpt_nomem(err, 2 * (size_t)n * sizeof *numbers);
    rc = load(numbers, &a->scale, first, n, err);
    if (rc == 0)
        rc = load(numbers + n, &a->zero, first, n, err);
    if (rc == 0)
        rc = work_out(dst, a, start, count, numbers, numbers + n, first, err);
    ckpt_free(numbers);
    return rc;
}
