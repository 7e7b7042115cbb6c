/*
 * run/optimizer - a run's optimizer, from its settings: rule, groups, numbers of a step.
 */
#ifndef CKPT_TRAINER_RUN_OPTIMIZER_H
#define CKPT_TRAINER_RUN_OPTIMIZER_H

#include "trainer/optim/optim.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

struct run_optimizer {
    struct ckpt_arena   arena;
    struct optim_groups groups;
    struct optim_group *now;            /* [groups.n] */
    struct optim_keys   keys;
};

/* Put the model's parameters into groups.  Once it is planned; the same on every rank. */
int run_optimizer_open(struct run_optimizer *o, const struct settings *s, struct session *session,
                       struct ckpt_err *err);
void run_optimizer_close(struct run_optimizer *o);
/* Where its states, weights and gradients are to lie. */
struct zero_opts run_optimizer_zero(const struct settings *s);
/* What a step wants to know; o and schedule are borrowed. */
struct optim_opts run_optimizer_opts(const struct run_optimizer *o, const struct settings *s,
                                     const struct schedule *schedule);

#endif
