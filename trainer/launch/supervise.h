/*
 * supervise - start ranks on this host and answer for them: no end without a reason, no process
 * left over.
 *
 * - A rank's own failure is printed once, with the rank, and its status is the run's.
 * - A rank that is killed, stopped or silent ends the run within five seconds.
 * - INT, TERM, HUP, USR1 and USR2 are forwarded to every rank once; then the run is waited for,
 *   however long its save takes.  INT or TERM a second later ends all ranks at once.
 * - Ranks of which none comes any further end after a while, by the name of the one that is behind.
 * - When this process is killed itself, its ranks end.
 * - Where another try may help, and is allowed, all ranks are started again (restart.h).
 */
#ifndef CKPT_TRAINER_LAUNCH_SUPERVISE_H
#define CKPT_TRAINER_LAUNCH_SUPERVISE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "trainer/launch/launch.h"
#include "trainer/launch/restart.h"

struct supervise_opts {
    int64_t n;                          /* ranks here */
    char  **argv;                       /* this program's; ranks get the same */
    int64_t max_restarts, min_ranks;    /* as in struct restart_opts */
    bool    on_gpus;                    /* each needs a GPU: another try counts them again */
    bool    resumes;                    /* a run that ends early can be resumed: hints say so */
    double  patience;                   /* seconds without progress of any rank; 0: no end */
    const struct launch_place *place;   /* one of several hosts; NULL: all ranks are here */
    int     line;                       /* there: what the launcher says (node.h); its end is
                                           the run's */
    void   *ctx;
    void  (*tell)(void *ctx, const struct ckpt_err *err);   /* print one failure */
    void  (*ended)(void *ctx, const struct restart_end *end);   /* after a try; NULL */
};

/*
 * Run ranks to their end.  0 with *status what to exit with: failures have been printed;
 * negative when nothing could be started.  More ranks than four for each CPU, and than 16, are
 * refused (CKPT_ECONFIG).
 */
int supervise_run(int *status, const struct supervise_opts *opts, struct ckpt_err *err);

#endif
