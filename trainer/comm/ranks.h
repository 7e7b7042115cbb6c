/*
 * ranks - how many ranks were started, by whom, and which of them this process is, according to
 * the launcher's environment variables.
 */
#ifndef CKPT_TRAINER_COMM_RANKS_H
#define CKPT_TRAINER_COMM_RANKS_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/fail.h"

struct ranks {
    long        world_size, rank;       /* 1 and 0: alone */
    const char *where;                  /* the variable that says so; "": none does */
    const char *launcher;               /* "mpirun", "srun", "torchrun"; "" */
    bool        placed;                 /* it says which rank this is, too */
    bool        meets;                  /* the ranks can find each other, through MPI */
    const char *job;                    /* a variable that announces a job of several tasks while
                                           this is one process of its own; NULL: none */
    long        job_size;
};

/* What the environment says.  Never fails: what is no number says nothing. */
struct ranks ranks_found(void);
/*
 * Refuse ranks that cannot meet: several were announced, but nothing that they could meet
 * through.  CKPT_ECONFIG, with what was found where and how to start them.
 */
int ranks_check(const struct ranks *r, struct ckpt_err *err);

#endif
