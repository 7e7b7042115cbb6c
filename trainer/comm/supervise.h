/*
 * supervise - start ranks on this host and answer for them: no end without a reason, no process
 * left over.
 *
 * - A rank's own failure is printed once, with the rank, and its status is the run's.
 * - A rank that is killed, stopped or silent ends the run within five seconds.
 * - INT, TERM, HUP, USR1 and USR2 are forwarded to every rank once; then the run is waited for,
 *   however long its save takes.  INT or TERM a second later ends all ranks at once.
 * - When this process is killed itself, its ranks end.
 */
#ifndef CKPT_TRAINER_COMM_SUPERVISE_H
#define CKPT_TRAINER_COMM_SUPERVISE_H

#include <stdint.h>

#include "libckpt/fail.h"

struct supervise_opts {
    int64_t n;                          /* ranks, > 1 */
    char  **argv;                       /* this program's; ranks get the same */
    void   *ctx;
    void  (*tell)(void *ctx, const struct ckpt_err *err);   /* print one failure */
};

/*
 * Run ranks to their end.  0 with *status what to exit with: failures have been printed;
 * negative when nothing could be started.  More ranks than four for each CPU, and than 16, are
 * refused (CKPT_ECONFIG).
 */
int supervise_run(int *status, const struct supervise_opts *opts, struct ckpt_err *err);

#endif
