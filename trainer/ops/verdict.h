/*
 * verdict - what the sum of a gradient's squares says about the step.
 *
 * Clipping as torch.nn.utils.clip_grad_norm_: factor max_norm / (norm + 1e-6), at most 1, of a
 * gradient without the scale of its loss.  Sums are in f64, where squares of f32 cannot overflow:
 * the norm is finite exactly when every element is.
 */
#ifndef CKPT_TRAINER_OPS_VERDICT_H
#define CKPT_TRAINER_OPS_VERDICT_H

#include <math.h>

#include "trainer/ops/ops.h"

#ifdef __CUDACC__
#define VERDICT_BOTH __host__ __device__
#else
#define VERDICT_BOTH
#endif

/* max_norm 0: never clipped.  scale: what the loss was multiplied by. */
VERDICT_BOTH static inline struct op_verdict verdict_of(double sum_squares, double max_norm,
                                                        double scale)
{
    struct op_verdict v;
    float clip = 1.0f;

    v.norm = sqrt(sum_squares) / scale;
    v.finite = isfinite(v.norm) != 0;
    if (max_norm > 0)
        clip = (float)fmin(max_norm / (v.norm + 1e-6), 1.0);
    v.factor = (float)((double)clip / scale);
    return v;
}

#endif
