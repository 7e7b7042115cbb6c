/*
 * shared - collectives of ranks on one host, through memory that their supervisor made for them.
 *
 * The memory is a file without a name (memfd), which ranks inherit: nothing is left of it when the
 * last of them has ended, however that was.
 */
#ifndef CKPT_TRAINER_COMM_SHARED_H
#define CKPT_TRAINER_COMM_SHARED_H

#include "trainer/comm/comm.h"

#define SHARED_ENV "CKPT_SHARED"        /* the number of the descriptor, for a rank */

/* Memory for n ranks, in *fd, closed on exec.  They sleep rather than spin where they are more than
 * the CPUs that this process may use. */
int shared_create(int *fd, int64_t n, struct ckpt_err *err);
/* The descriptor that the environment names, which is taken out of there; -1: none. */
int shared_inherited(void);
/*
 * One of n ranks.  Takes fd, on failure too; CKPT_ECONFIG for one that shared_create(n) did not
 * make.  A rank that closes while others wait for it ends their collectives with CKPT_ECOMM; one
 * that is killed is the supervisor's to notice.
 */
int shared_open(struct comm **out, int fd, int rank, int n, struct ckpt_err *err);

#endif
