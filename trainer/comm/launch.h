/*
 * launch - start ranks of this program on this host through Open MPI's mpirun, and end them.
 *
 * mpirun runs in a session of its own: a terminal's signals reach only the supervisor, which
 * forwards them.  The output of mpirun and of ranks without a supervisor is kept, to be quoted
 * when nothing else says why they ended.  All their files are in one private directory.
 */
#ifndef CKPT_TRAINER_COMM_LAUNCH_H
#define CKPT_TRAINER_COMM_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "trainer/comm/control.h"

struct launch {
    char   dir[64];                     /* private; "": none */
    char   word[CONTROL_WORD + 1];      /* what ranks say hello with */
    int    listener;                    /* where they say it; -1 */
    int    output;                      /* mpirun's words; -1 */
    pid_t  pid;                         /* mpirun */
    bool   ended;
    int    status;                      /* once ended, as waitpid gives it */
    char   said[4096];                  /* the first of its words */
    size_t n_said;
};

/*
 * Start n ranks with the arguments argv[1...] and the signal mask that they are to have.
 * CKPT_EDEVICE where there is no mpirun.  launch_end either way.
 */
int launch_start(struct launch *l, int64_t n, char **argv, const sigset_t *mask,
                 struct ckpt_err *err);
/* Read what mpirun says, notice its end; to be called now and then. */
void launch_look(struct launch *l);
/* The first line of what mpirun said that says something; "" when nothing does. */
void launch_quote(const struct launch *l, char *out, size_t size);
/* End mpirun and every process that it leaves, within two seconds, and remove the directory. */
void launch_end(struct launch *l);

#endif
