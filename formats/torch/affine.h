/*
 * torch/affine - torch's own quantised tensors (qint8, quint8, qint32), dequantised.
 *
 *   _rebuild_qtensor(storage, offset, size, stride, quantizer, requires_grad, hooks)
 *   quantizer: (torch.per_tensor_affine, scale, zero)
 *              (torch.per_channel_affine, scales, zeros, axis): tensors or lists, one a channel
 *              (torch.per_channel_affine_float_qparams, scales, zeros, axis)
 *
 * A value is (code - zero) * scale: the difference is rounded to F32, the scale too, the product
 * again, as dequantize() has it.
 * Source: torch 2.15 torch/_utils.py, aten/src/ATen/native/quantized/AffineQuantizerBase.cpp.
 */
#ifndef CKPT_FORMATS_TORCH_AFFINE_H
#define CKPT_FORMATS_TORCH_AFFINE_H

#include "formats/torch/torch.h"

/* Scales or zeros, one or one a channel: numbers of the pickle, or a tensor. */
struct torch_affine_numbers {
    const struct value         *value;
    const struct ckpt_fragment *frag;           /* of a tensor that has elements */
};

struct torch_affine {
    struct ckpt_shape           shape;
    enum ckpt_dtype             codes;
    const struct ckpt_fragment *frag;           /* of the codes; NULL: there are none */
    struct torch_affine_numbers scale, zero;
    int64_t                     channels;       /* 1: one scale for all */
    int64_t                     inner;          /* elements between two channels */
};

/*
 * How t is quantised, which has a quantizer.  CKPT_EUNSUPPORTED for a scheme that is not read,
 * CKPT_EFORMAT for scales that are none or do not fit.
 */
int torch_affine_read(struct torch_affine *out, struct ckpt_arena *arena,
                      const struct torch_archive *a, const struct value_tensor *t,
                      struct ckpt_err *err);
/* Elements [start, start + count) in row-major order.  Any thread. */
int torch_affine_gather(float *dst, const struct torch_affine *a, int64_t start, int64_t count,
                        struct ckpt_err *err);

#endif
