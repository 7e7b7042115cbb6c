/*
 * restart - tries of a run: whether ranks that failed are started again, after what pause, how
 * many of them, and when that is no use.
 *
 * Another try is made after a failure that it may help: a peer that is gone, a rank that a signal
 * has ended.  What data, settings or memory are the reason for is not tried again, nor is a run
 * that was asked to stop.  A try that fails where the one before it did, with nothing saved in
 * between, is the last, unless fewer ranks are allowed: then there is one rank fewer.
 */
#ifndef CKPT_TRAINER_LAUNCH_RESTART_H
#define CKPT_TRAINER_LAUNCH_RESTART_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/err.h"

/* What one try came to. */
struct restart_end {
    int     status;                     /* exit status */
    bool    again;                      /* another try may help */
    int64_t step;                       /* the last that a rank began; -1: none */
    int64_t saving, saved;              /* first step whose save was begun, last one that is
                                           complete; -1: none */
    struct ckpt_err *failure;           /* [n_failures] in the order to print; restart_tell */
    size_t           n_failures;
};

/* What a try is given. */
struct restart_try {
    int64_t         n;                  /* ranks */
    int64_t         saved;              /* first step that earlier tries began to save; -1 */
    int             signals;            /* signalfd of what the caller of restart_run is sent */
    const sigset_t *mask;               /* for child processes */
};

struct restart_opts {
    int64_t n, max, min;                /* ranks; tries after the first; fewest ranks, 0: n */
    void   *ctx;
    /* Negative: nothing could be started. */
    int   (*run)(void *ctx, struct restart_end *end, const struct restart_try *t,
                 struct ckpt_err *err);
    /* How many of n ranks there are places for at another try; NULL: all. */
    int64_t (*left)(void *ctx, int64_t n);
    void   *tell_ctx;
    void  (*tell)(void *ctx, const struct ckpt_err *err);   /* print one failure */
};

/* Add a failure to those that are to be told. */
void restart_tell(struct restart_end *end, const struct ckpt_err *err);

/*
 * Tries until one succeeds, or no other is to be made.  Its failures go to tell; those of tries
 * that others follow are warnings.  0 with *status what to exit with; negative when the first
 * could not be started.
 */
int restart_run(int *status, const struct restart_opts *opts, struct ckpt_err *err);

/* -- what is decided after a try -------------------------------------------------------------- */

struct restart {
    int64_t n, max, min;                /* ranks of the next try; as in restart_opts */
    int64_t tried;                      /* tries so far */
    int64_t saving, saved;              /* as in restart_end, of all tries */
    bool    failed;                     /* a try with as many ranks: */
    int     status;
    int64_t step, at;                   /* its step; saved when it ended */
};

enum restart_what { RESTART_END, RESTART_SPENT, RESTART_STUCK, RESTART_AGAIN };

/* What follows on end: nothing, since another try does not help, is not allowed, or would end as
 * the last two did; or another one of r->n ranks. */
enum restart_what restart_judge(struct restart *r, const struct restart_end *end);
/* Seconds before the next try. */
double restart_pause(const struct restart *r);

#endif
