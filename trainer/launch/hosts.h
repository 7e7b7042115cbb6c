/*
 * hosts - start ranks on several hosts, each with its own supervisor (node.h), and answer for them.
 *
 * One ssh a host runs this program there, in the same folder and with the same arguments.  Ranks
 * meet on the first host, through a store whose word goes by ssh.  Signals are passed on; where one
 * host's ranks fail all are ended, and the status is that of the failure.  A host that cannot be
 * reached, or is lost, fails as a rank that is killed does.
 */
#ifndef CKPT_TRAINER_LAUNCH_HOSTS_H
#define CKPT_TRAINER_LAUNCH_HOSTS_H

#include <stdint.h>

#include "trainer/launch/hostfile.h"
#include "trainer/launch/restart.h"

#define HOSTS_CHOSEN_ENV "CKPT_MPIRUN"  /* set for ranks that mpirun starts on chosen hosts */

struct hosts_opts {
    const struct hostfile *hosts;
    const char            *master;      /* address of the first host; NULL: its name */
    uint16_t               master_port;
    int64_t                ssh_port;    /* 0: ssh's own choice */
    int64_t                max_restarts, min_ranks;     /* as in struct restart_opts */
    char                 **argv;        /* this program's; it gets the same there */
    void                  *ctx;
    void                 (*tell)(void *ctx, const struct ckpt_err *err);
};

/* Whether a variable, NAME=VALUE, means the same on every host. */
bool hosts_passes(const char *variable);
/* As supervise_run. */
int hosts_run(int *status, const struct hosts_opts *opts, struct ckpt_err *err);

#endif
