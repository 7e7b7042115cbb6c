/*
 * ranks - how many ranks were started, by whom, which of them this process is and where they meet,
 * according to the launcher's environment variables.
 */
#ifndef CKPT_TRAINER_COMM_RANKS_H
#define CKPT_TRAINER_COMM_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define RANKS_HELD_ENV "CKPT_STORE_HELD"    /* set: the launcher holds the store */

enum ranks_meet {
    RANKS_NOWHERE,                      /* alone, or nothing says where */
    RANKS_MPI,                          /* through the MPI that started them */
    RANKS_STORE                         /* through a store at host and port */
};

struct ranks {
    long            world_size, rank;   /* 1 and 0: alone */
    long            local_rank;         /* among the ranks of this host, where it is said */
    const char     *where;              /* the variable that says so; "": none does */
    const char     *launcher;           /* "mpirun", "srun", "torchrun" ...; "" */
    bool            placed;             /* it says which rank this is, too */
    const char     *odd;                /* a variable that is not what it should be, or lacks: of
                                           the world's size, of the rank in it, of the port */
    enum ranks_meet meet;
    char            host[256];          /* of the store: a name or number */
    uint16_t        port;
    bool            held;               /* by the launcher, not by rank 0 */
    const char     *job;                /* a variable that tells of a job of several tasks while
                                           this is one process of its own; NULL: none */
    long            job_size;
};

/* What the environment says.  Never fails: what is no number says nothing, but for odd; what is
 * empty is as absent. */
struct ranks ranks_found(void);
/*
 * Refuse a world of no number of ranks, or of none while this is one of its ranks: each of them
 * would train by itself; a rank that is none of its world; and ranks that cannot meet: several were
 * announced, but nothing that they could meet through.  CKPT_ECONFIG, with what was found where and
 * how to start them.
 */
int ranks_check(const struct ranks *r, struct ckpt_err *err);
/* The first host of a Slurm node list: "tux[03-07,9],other" gives "tux03", "r[1-2]n[4-6]" gives
 * "r1n4".  "": none. */
void ranks_first_host(char *out, size_t size, const char *list);

#endif
