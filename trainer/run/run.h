/*
 * run - door one: train from settings to the last checkpoint.
 */
#ifndef CKPT_TRAINER_RUN_RUN_H
#define CKPT_TRAINER_RUN_RUN_H

#include "trainer/plan/estimate.h"
#include "trainer/tell/event.h"
#include "trainer/run/settings.h"
#include "trainer/run/simulate.h"

/* Between a run and its caller, while it runs. */
struct run_io {
    void *ctx;
    /* All ranks are there, and nothing is read or written yet: whether what the caller needs beside
     * the run is there too.  Rank 0 only; an error ends all.  May be NULL. */
    int (*ready)(void *ctx, struct ckpt_err *err);
    /* A checkpoint is complete and durable.  Rank 0 only.  May be NULL. */
    int (*artifact)(void *ctx, const char *path, struct ckpt_err *err);
    /* What the run tells while it goes.  Rank 0 only.  May be NULL. */
    run_event_fn *event;
    /* What a simulation came to (simulate_world). */
    int (*simulated)(void *ctx, const struct run_simulated *r, struct ckpt_err *err);
    /* What a dry run found (dry_run). */
    int (*planned)(void *ctx, const struct estimate *e, struct ckpt_err *err);
    /* Set from outside: save at the end of the step in work, then end with CKPT_ESTOPPED. */
    const volatile int *stop;
    /* Print a failure while the communicator is still open: what launcher ends the others of a
     * rank that left, ends them after this.  agreed: all ranks know of it, and rank 0 alone prints
     * it; else it is this rank's own, and its peers are ended afterwards.  May be NULL. */
    void (*fail)(void *ctx, const struct ckpt_err *err, bool agreed);
    /* Set by run_train: this rank or another printed the failure. */
    bool told;
};

/* Collective when started by a launcher.  settings have passed settings_check. */
int run_train(const struct settings *s, struct run_io *io, struct ckpt_err *err);

#endif
