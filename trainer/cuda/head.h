/*
 * head - the losses of rows of logits, and the gradient, which overwrites the logits.
 */
#ifndef CKPT_TRAINER_CUDA_HEAD_H
#define CKPT_TRAINER_CUDA_HEAD_H

#include "trainer/cuda/cuda.h"

struct head_rows {
    float         *nll;
    const int32_t *targets;
    int64_t        ld;                  /* from row to row, a multiple of 16 bytes */
    int            V;
    float          mul, factor;         /* factor of the logits, above 0; of the gradient, 0:
                                           none is written */
    float          smoothing, z_loss;   /* as op_head's */
};

/* n rows of z, of f32 or the device's type: nll = -log softmax(mul z)[target]; z becomes
 * factor * (softmax(mul z) - onehot); both with smoothing and z_loss (op_head). */
void head_softmax(struct device *dev, void *z, enum ckpt_dtype type, int64_t n,
                  const struct head_rows *l);

#endif
