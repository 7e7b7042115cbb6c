/*
 * shape - rank, dims, and overflow-checked element and byte counts.
 */
#ifndef CKPT_LIBCKPT_SHAPE_H
#define CKPT_LIBCKPT_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"
#include "libckpt/dtype.h"
#include "libckpt/fail.h"

CKPT_BEGIN_C

#define CKPT_MAX_RANK 16

/* A rank-0 tensor has one element; a dim of 0 makes an empty one. */
struct ckpt_shape {
    int     rank;                   /* 0..CKPT_MAX_RANK */
    int64_t dim[CKPT_MAX_RANK];     /* each >= 0, outermost first */
};

/* False when a dim is negative, the rank is out of range or the product overflows. */
bool ckpt_shape_numel(int64_t *out, const struct ckpt_shape *s);
/* Bytes of all elements, sub-byte types rounded up.  False on overflow. */
bool ckpt_shape_bytes(uint64_t *out, const struct ckpt_shape *s, enum ckpt_dtype t);
bool ckpt_shape_equal(const struct ckpt_shape *a, const struct ckpt_shape *b);
struct ckpt_shape ckpt_shape_of(int rank, const int64_t *dim);
struct ckpt_shape ckpt_shape_1d(int64_t n);
struct ckpt_shape ckpt_shape_2d(int64_t rows, int64_t cols);
/* "[31, 18]"; cut to fit, always terminated.  Returns dst. */
char *ckpt_shape_text(char *dst, size_t size, const struct ckpt_shape *s);

CKPT_END_C

#endif
