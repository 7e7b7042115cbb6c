/*
 * run/output - the output folder before the first step: free of what is in the run's way, made,
 * locked, and known to be one for all ranks or one on each node's disk.
 */
#ifndef CKPT_TRAINER_RUN_OUTPUT_H
#define CKPT_TRAINER_RUN_OUTPUT_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/dir.h"

struct run_output {
    const struct settings  *settings;
    struct run_dir         *dir;        /* the rank's own */
    const struct run_state *state;
    struct session         *session;
    int64_t                 step;       /* that the run goes on from; -1: a fresh one */
    bool                    own;        /* which is that of the newest checkpoint of its folders */
};

/* Whether checkpoints are in the way of this run's own.  Collective. */
int run_output_check(const struct run_output *o, struct ckpt_err *err);
/* The output as the run's own: made, locked, free of what is in its way and of what killed runs
 * left unfinished.  Collective. */
int run_output_take(struct folders *f, const struct run_output *o, struct ckpt_err *err);

/* Refuse what that, and opening what the run tells, would refuse as things are now; create nothing.
 * Rank 0. */
int run_output_ready(const struct run_output *o, struct ckpt_err *err);

#endif
