/*
 * torch/array - numpy arrays, whose elements lie in the pickle itself.
 *
 *   numpy._core.multiarray._reconstruct(ndarray, (0,), b'b') with the state
 *       (version, shape, dtype, Fortran order, bytes)
 *   numpy._core.numeric._frombuffer(bytes, dtype, shape, 'C', 'F' or 'K'[, order of the axes])
 *   numpy.dtype('f8', False, True) with the state (3, '<', ...): '>' is big-endian
 *
 * numpy.core before numpy 2.  Arrays of objects, texts, records and times are no tensors.
 * Source: numpy 2.4 _core/src/multiarray/methods.c, _core/numeric.py.
 */
#ifndef CKPT_FORMATS_TORCH_ARRAY_H
#define CKPT_FORMATS_TORCH_ARRAY_H

#include "formats/container/value.h"
#include "libckpt/fail.h"

struct torch_array {
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    int64_t           stride[CKPT_MAX_RANK];    /* elements */
    bool              swapped;                  /* big-endian */
    const char       *bytes;                    /* as long as the values */
    size_t            n_bytes;
};

/* True for the record of any array. */
bool torch_array_is(const struct value *v);
/* CKPT_EUNSUPPORTED for elements that have no dtype here, CKPT_EFORMAT for what is no array. */
int torch_array_read(struct torch_array *out, const struct value *v, struct ckpt_err *err);
/* Elements [start, start + count) in row-major order, little-endian.  Any thread. */
int torch_array_gather(void *dst, const struct torch_array *a, int64_t start, int64_t count,
                       struct ckpt_err *err);

#endif
