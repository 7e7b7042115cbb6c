/*
 * run/start - where a run begins: at a checkpoint of an earlier one, at a model with or without an
 * adapter, or at fresh weights.
 */
#ifndef CKPT_TRAINER_RUN_START_H
#define CKPT_TRAINER_RUN_START_H

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/dir.h"

/* The same on every rank, but for the path of its own output. */
struct run_start {
    char    resume[4096];       /* checkpoint to go on from; "": none */
    char    folder[4096];       /* whose newest complete one that is; "": it was named */
    bool    file;               /* resume is `resume_file`: weights alone */
    bool    own;                /* it is the run's output, and each rank's own path is meant */
    int64_t number;             /* of that */
    int64_t step;               /* of the checkpoint; -1: the run is a fresh one, or goes on
                                   from a file */
    char    base[4096];         /* the model that is started from; "": fresh or resumed */
    char    adapter[4096];      /* whose configuration counts; "": none, or as options say */
};

/* Choose where to start; rank 0 broadcasts it.  s has joined; d is the rank's own.  Collective. */
int run_start_find(struct run_start *start, struct session *s, const struct settings *set,
                   struct run_dir *d, struct ckpt_err *err);
/* Open the model, and beside it the adapter that was found or that options describe. */
int run_start_open(struct session *s, const struct run_start *start, const struct settings *set,
                   struct ckpt_err *err);
/*
 * Load or draw the weights.  Where the newest checkpoint is asked for and is found to be damaged,
 * the one before it is loaded instead, with a warning, and start becomes that one.  Collective.
 */
int run_start_load(struct run_start *start, struct session *s, struct checkpoint *c,
                   struct run_state *state, struct run_dir *d, struct ckpt_err *err);

/* Refuse what loading would refuse before it reads weights.  Collective. */
int run_start_check(const struct run_start *start, struct session *s, struct checkpoint *c,
                    struct run_state *state, struct ckpt_err *err);

#endif
