/*
 * convert - arrays from one dtype to another, as torch's Tensor.to does it.
 *
 * Floats round to nearest, ties to even; f64 -> 16-bit and 8-bit goes through f32 as torch's
 * casts do, and so do integers (rounded once).  int -> int keeps the low bits.  float -> int
 * truncates towards zero and clamps at the ends of the range, NaN gives 0 (torch leaves both to
 * the processor).  Any value but 0, NaN included, becomes a true BOOL.  Complex, sub-byte and
 * quantised types convert to themselves only.
 *
 * NaN stays NaN, in these bits: BF16 0x7fc0 (torch's vector code gives 0xffff on some
 * processors); F16 <-> F32 keeps sign and payload and sets the quiet bit, as the processor's
 * instructions and torch do; F8 as half.h says.  Vector code is chosen at run time and gives the
 * same bits as the plain loop (a unit test compares them).
 */
#ifndef CKPT_LIBCKPT_CONVERT_H
#define CKPT_LIBCKPT_CONVERT_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/api.h"
#include "libckpt/dtype.h"

CKPT_BEGIN_C

/* True when ckpt_convert can go from one to the other. */
bool ckpt_convert_can(enum ckpt_dtype to, enum ckpt_dtype from);
/* n elements; dst and src do not overlap, or are equal when the width is the same. */
void ckpt_convert(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                  size_t n);

CKPT_END_C

#endif
