/*
 * resident - the simplest weights of a model: all layers in one block of memory, gradients
 * (when asked for) in another.  For one rank, evaluation and tests.
 */
#ifndef CKPT_TRAINER_MODEL_RESIDENT_H
#define CKPT_TRAINER_MODEL_RESIDENT_H

#include "trainer/model/model.h"
#include "trainer/ops/ops.h"

struct resident;

/* params and dev outlive it.  Weights and gradients start as zeros, f32. */
int resident_new(struct resident **out, const struct params *params, bool grads,
                 struct device *dev, struct ckpt_err *err);
void resident_free(struct resident *r);
/* The interface for model_*. */
const struct model_weights *resident_door(const struct resident *r);
/* Parameter i, or the whole [params->numel] in the parameters' order; device memory.  Gradients
 * are those of trained parameters, [params->grad_numel]; a frozen one's is NULL. */
float *resident_weight(const struct resident *r, size_t i);
float *resident_grad(const struct resident *r, size_t i);
float *resident_weights(const struct resident *r);
float *resident_grads(const struct resident *r);

#endif
