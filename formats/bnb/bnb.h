/*
 * bnb - bitsandbytes' packed tensors, dequantised to the values that its kernels compute.
 *
 * Weights of 4 bits (nf4, fp4; absmax plain or nested), of 8 bits (LLM.int8) and states of 8-bit
 * optimizers, in any format: a view over any source.  Tensors that only describe another (absmax,
 * quant_map, SCB ...) do not appear in the view.  Layout:
 *
 *   X.weight            bytes, two elements each, the first in the upper half; shape [n / 2, 1]
 *                       (of another dtype when quant_storage says so: the bytes are the same)
 *   X.weight.absmax     F32 for each block; nested: U8
 *   X.weight.quant_map  F32 [16]
 *   X.weight.nested_absmax, .nested_quant_map   F32 for each 256 of absmax; F32 [256]
 *   X.weight.quant_state.bitsandbytes__nf4      JSON as U8: blocksize, dtype, shape, nested_offset
 *
 *   X.weight  I8 [rows, columns], X.SCB  F32 [rows], X.weight_format  U8, 0
 *
 *   P.state1, P.state2  U8 with P.qmap1 F32 [256] and P.absmax1 F32 for each block; P is followed
 *                       by "__bnb_optimizer_quant_state__." since 0.49.1.  Block size, not stored:
 *                       256 since 0.44, 2048 before.  AdEMAMix has a slice for each average.
 *
 * A value is map[code] * absmax in F32, then rounded to the dtype it was packed from; absmax of a
 * nested one is map[code] * nested_absmax + offset; of int8 code * SCB * (1 / 127).  Optimizer
 * states are F32, called exp_avg and exp_avg_sq when there are two of one shape.  Source:
 * bitsandbytes 0.50.2, functional.py, backends/default/ops.py.
 */
#ifndef CKPT_FORMATS_BNB_BNB_H
#define CKPT_FORMATS_BNB_BNB_H

#include "libckpt/source.h"

/* How many tensors are packed, and the kind of the first one found: "nf4", "fp4", "int8", "8-bit
 * optimizer" (NULL when there is none).  Looks at names only. */
size_t bnb_count(const struct ckpt_source *src, const char **what);
/*
 * Takes src, on failure too; *out is src itself when nothing is packed.  CKPT_EFORMAT when parts
 * are missing or do not fit.  config.json is not changed: quant_view, which calls this, drops its
 * quantization_config.
 */
int bnb_view(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err);

#endif
