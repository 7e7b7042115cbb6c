/*
 * launch - start ranks of this program on this host, and end them.
 *
 * Ranks meet in a store on the loopback address, which this process holds and which asks for a
 * word that only they are given.  Each runs in a session of its own: a terminal's signals reach
 * only the supervisor, which forwards them.  When this process dies its ranks are killed.
 */
#ifndef CKPT_TRAINER_LAUNCH_LAUNCH_H
#define CKPT_TRAINER_LAUNCH_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "libckpt/err.h"
#include "trainer/comm/store_server.h"

#define LAUNCH_COMM_ENV "CKPT_COMM"     /* gloo: ranks of one host share no memory; or shared */

/* One rank's process. */
struct launch_rank {
    pid_t pid;                          /* 0: not started */
    int   control;                      /* this end of its control socket; -1 */
    bool  ended;
    int   status;                       /* once ended, as waitpid gives it */
};

struct launch {
    struct store_server *store;         /* NULL: rank 0 of all hosts holds it */
    int                  shared;        /* memory that ranks talk through; -1, or 0: none */
    struct launch_rank  *rank;          /* [n] */
    int64_t              n;
};

/* Where ranks of several hosts meet.  Their rank 0 holds the store. */
struct launch_place {
    int64_t     first, world_size;      /* rank of the first one here; ranks of all hosts */
    const char *master, *word;
    uint16_t    port;
    int64_t     saved;                  /* as in struct launch_opts */
};

struct launch_opts {
    int64_t         n;                  /* ranks here */
    char          **argv;               /* argv[1...] are their arguments */
    const sigset_t *mask;               /* signals that they block */
    int64_t         saved;              /* first step that earlier tries of this run saved; -1 */
    const struct launch_place *place;   /* NULL: all ranks are here */
};

/*
 * Start the ranks.  The first reads this process' standard input when all are here, the others
 * none; where there are two CPUs for each, each rank gets its own part of them.  launch_end either
 * way.
 */
int launch_start(struct launch *l, const struct launch_opts *opts, struct ckpt_err *err);
/* Notice ranks that have ended. */
void launch_look(struct launch *l);
/* Kill every rank, and every process of its session that it leaves. */
void launch_end(struct launch *l);
/* How many GPUs can be used here.  A short-lived process counts them: what has opened CUDA cannot
 * start ranks any more. */
int launch_gpus(int64_t *n, struct ckpt_err *err);
/*
 * The number of ranks to start here: *n as it is, or with `all` one for each GPU; *on_gpus is set
 * where each is to have one.  device: as in struct device_opts.  CKPT_ECONFIG for more ranks than
 * GPUs where the device is cuda, and for `all` of another device; CKPT_EDEVICE without a GPU.
 */
int launch_count(int64_t *n, bool all, const char *device, bool *on_gpus, struct ckpt_err *err);

#endif
