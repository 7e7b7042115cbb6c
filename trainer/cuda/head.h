/*
 * head - rows of logits: their losses, and their gradient in their place.
 */
#ifndef CKPT_TRAINER_CUDA_HEAD_H
#define CKPT_TRAINER_CUDA_HEAD_H

#include "trainer/cuda/cuda.h"

struct head_rows {
    float         *nll;
    const int32_t *targets;
    int64_t        ld;                  /* from row to row, a multiple of 16 bytes */
    int            V;
    float          mul, factor;         /* of logits, above 0; of what is written, 0: nothing */
};

/* n rows of z, of f32 or the device's type: nll = -log softmax(mul z)[target]; z becomes
 * factor * (softmax(mul z) - onehot). */
void head_softmax(struct device *dev, void *z, enum ckpt_dtype type, int64_t n,
                  const struct head_rows *l);

#endif
