/*
 * launch - start ranks of this program on this host, and end them.
 *
 * Ranks meet in a store on the loopback address, which this process holds and which asks for a
 * word that only they are given.  Each runs in a session of its own: a terminal's signals reach
 * only the supervisor, which forwards them.  When this process dies its ranks are killed.
 */
#ifndef CKPT_TRAINER_COMM_LAUNCH_H
#define CKPT_TRAINER_COMM_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "libckpt/err.h"
#include "trainer/comm/store_server.h"

/* One rank's process. */
struct launch_rank {
    pid_t pid;                          /* 0: not started */
    int   control;                      /* this end of its control socket; -1 */
    bool  ended;
    int   status;                       /* once ended, as waitpid gives it */
};

struct launch {
    struct store_server *store;
    struct launch_rank  *rank;          /* [n] */
    int64_t              n;
};

/*
 * Start n ranks with the arguments argv[1...] and the signal mask that they are to have.  Rank 0
 * reads this process' standard input, the others none; where there are two CPUs for each, each rank
 * gets its own part of them.  launch_end either way.
 */
int launch_start(struct launch *l, int64_t n, char **argv, const sigset_t *mask,
                 struct ckpt_err *err);
/* Notice ranks that have ended. */
void launch_look(struct launch *l);
/* Kill every rank, and every process that one leaves. */
void launch_end(struct launch *l);

#endif
