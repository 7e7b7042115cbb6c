/*
 * drop - apply the mask of op_drop to rows.
 */
#ifndef CKPT_TRAINER_CPU_DROP_H
#define CKPT_TRAINER_CPU_DROP_H

#include "trainer/ops/ops.h"

/*
 * out[i] = drop(in[i]) for rows [r0, r1) of an activation [.., width]; in and out point to row r0
 * and have those strides.  in may be out.
 */
void cpu_drop_rows(float *out, int64_t out_ld, const float *in, int64_t in_ld,
                   const struct op_drop *d, int64_t r0, int64_t r1, int64_t width);
/* x[0, n) <- drop(x): columns from c0 on of row i of the probabilities of a head. */
void cpu_drop_span(float *x, const struct op_drop *d, int64_t i, int64_t head, int64_t c0,
                   int64_t n);

#endif
