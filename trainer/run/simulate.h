/*
 * run/simulate - how fast a world of many ranks would train: steps of its rank 0, timed on one GPU
 * beside collectives that are simulated (comm/simulate.h).
 *
 * Warming up takes five steps at least, and lasts until three in a row are within 5 % of the
 * quickest so far, forty at most.  The steps that follow are timed, then the same ones again with
 * collectives that take no time: the difference is the communication that nothing hides.
 * Nothing is learned: the learning rate is 0, and no rank's gradients are another's.
 */
#ifndef CKPT_TRAINER_RUN_SIMULATE_H
#define CKPT_TRAINER_RUN_SIMULATE_H

#include "trainer/run/data.h"
#include "trainer/run/step.h"

/* Times are seconds of one step, in the mean. */
struct run_simulated {
    struct simulate_net net;
    int     world, nodes, stage;
    int     group;                      /* ranks that shard among themselves; world: not hybrid */
    int64_t steps;                      /* that were timed */
    double  tokens;                     /* of a step, on all ranks */
    double  seconds, seconds_least;
    double  exposed;                    /* of them: communication beside which nothing was done */
    double  communication;              /* what collectives took, exposed or not */
    double  collectives, bytes;         /* of a step; bytes as comm/simulate.h counts them */
};

/*
 * The session is planned for the world and loaded; `steps` are to be timed, 0: as many as give a
 * steady figure.  *stop, as it is set from outside, ends with CKPT_ESTOPPED.
 */
int run_simulate(struct run_simulated *out, const struct session *s, const struct run_data *data,
                 const struct step_opts *opts, int64_t steps, const volatile int *stop,
                 struct ckpt_err *err);

#endif
