/*
 * mpirun - start ranks on several hosts through Open MPI's mpirun, and wait for it.
 *
 * Ranks find each other, and talk, through MPI.  mpirun answers for them: it notices a rank that
 * dies, and its status is the run's.  A signal asks all ranks to save and end; it goes to them as
 * USR1, since mpirun itself ends them at INT and TERM.
 *
 * Source: Open MPI 4.1, mpirun(1).
 */
#ifndef CKPT_TRAINER_LAUNCH_MPIRUN_H
#define CKPT_TRAINER_LAUNCH_MPIRUN_H

#include "trainer/launch/hosts.h"

/* As hosts_run; master, master_port, max_restarts and min_ranks are not used.  CKPT_EDEVICE where
 * there is no mpirun. */
int mpirun_run(int *status, const struct hosts_opts *opts, struct ckpt_err *err);

#endif
