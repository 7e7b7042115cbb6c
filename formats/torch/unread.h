/*
 * torch/unread - tensors that are known for what they are and whose values are not read: sparse,
 * nested and meta tensors, classes of other libraries, dtypes without a place here, windows with
 * a conjugate or negative bit.
 *
 *   _rebuild_sparse_tensor(layout, (indices, values, size, ...))     COO
 *   _rebuild_sparse_tensor(layout, (rows, columns, values, size))    CSR, CSC, BSR, BSC
 *   _rebuild_nested_tensor(buffer, sizes, strides, offsets)
 *   _rebuild_meta_tensor_no_storage(dtype, size, stride, ...)
 *   _rebuild_wrapper_subclass(class, dtype, size, ...)
 *   _rebuild_device_tensor_from_cpu_tensor(tensor, dtype, device, ...)
 *   _rebuild_tensor_v2, _v3, _rebuild_qtensor, and any of them as arguments of
 *   _rebuild_from_type_v2 or _rebuild_parameter
 *
 * Source: torch 2.15 torch/_utils.py, torch/_tensor.py.
 */
#ifndef CKPT_FORMATS_TORCH_UNREAD_H
#define CKPT_FORMATS_TORCH_UNREAD_H

#include "formats/container/value.h"
#include "libckpt/fail.h"

struct torch_unread {
    char              kind[64];         /* "sparse_csr", "nested", "meta", a class, a dtype */
    enum ckpt_dtype   dtype;            /* of its values; U8 when it has none here */
    struct ckpt_shape shape;            /* of a nested one that of its buffer */
    uint64_t          bytes;            /* of the parts that the file holds of it */
};

/* True for the record of a call that would make a tensor. */
bool torch_unread_is(const struct value *v);
/* CKPT_EUNSUPPORTED when even dtype and shape cannot be told. */
int torch_unread_tell(struct torch_unread *out, const struct value *v, struct ckpt_err *err);

#endif
