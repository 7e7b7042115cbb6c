/*
 * optim - a step of the optimizer over the parameters that this rank owns.
 */
#ifndef CKPT_TRAINER_OPTIM_OPTIM_H
#define CKPT_TRAINER_OPTIM_OPTIM_H

#include "trainer/optim/groups.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/table.h"
#include "trainer/shard/zero.h"

struct optim_opts {
    enum op_rule rule;
    struct optim_keys keys;
    double beta1, beta2, eps;
    double weight_decay;
    double max_grad_norm;       /* clip the gradient to this norm; 0: never */
    int64_t lag;                /* steps of the schedule before the optimizer's first */
    uint64_t seed;              /* for moments with stochastic rounding */
    /* Numbers of groups along the run; NULL both: lr and weight_decay. */
    const struct schedule     *schedule;
    const struct optim_groups *groups;
    struct optim_group        *now;     /* [groups->n] room for those of a step */
};

/* One update, as zero_judge decided: with its clipping factor, or skipped.  step counts from 1. */
void optim_step(struct zero *z, const struct optim_opts *opts, double lr, int64_t step);

#endif
