/*
 * convert - arrays from one dtype to another, as torch's Tensor.to does it.
 *
 * f64 -> 16-bit and 8-bit goes through f32 exactly as torch's casts do (static_cast<float> first).
 * int -> float rounds to nearest even; float -> int truncates towards zero and clamps at the
 * ends of the range, NaN gives 0 (torch leaves both undefined).  Vector code is chosen at run time and gives the
 * same bits as the plain loop (a unit test compares all 65,536 halves and random f32 patterns).
 */
#ifndef CKPT_CONVERT_H
#define CKPT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/dtype.h"

/* True when ckpt_convert can go from one to the other. */
bool ckpt_convert_can(enum ckpt_dtype to, enum ckpt_dtype from);
/* n elements; dst and src do not overlap, or are equal when the width is the same. */
void ckpt_convert(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from, size_t n);

#endif
