/*
 * optim - AdamW over the parameters that this rank owns, as torch.optim.AdamW with HF Trainer's
 * two groups: weight decay for all but biases and norms.
 */
#ifndef CKPT_TRAINER_OPTIM_OPTIM_H
#define CKPT_TRAINER_OPTIM_OPTIM_H

#include "trainer/shard/zero.h"

struct optim_opts {
    double beta1, beta2, eps;
    double weight_decay;
    double max_grad_norm;       /* clip the gradient to this norm; 0: never */
    uint64_t seed;              /* for moments with stochastic rounding */
};

/* One update, as zero_judge decided: with its clipping factor, or skipped.  step counts from 1. */
void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step);

#endif
