/*
 * train/child - a program that runs beside the training: started at once, never waited for by a
 * step.
 *
 * It has no terminal's input, prints to standard error, and is none of the run's ranks: variables
 * by which launchers and supervisors know ranks are taken from its environment.  It is in a
 * session of its own: a terminal's interrupt stops the training, and the child finishes, also where
 * a supervisor ends what a rank leaves.
 */
#ifndef CKPT_TOOLS_TRAIN_CHILD_H
#define CKPT_TOOLS_TRAIN_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "libckpt/fail.h"

#define CHILD_MAX_VARS 24

struct child {
    pid_t pid;                          /* 0: none runs */
    int   in;                           /* of a pipe to its input; -1 */
};

struct child_opts {
    const char *const *argv;            /* argv[0] is a path, or found by PATH */
    const char *const *vars;            /* n_vars of "NAME=VALUE", beside the environment's */
    size_t             n_vars;
    bool               pipe;            /* to its input */
    int                out;             /* a file for its output; 0: standard error */
    int                errors;          /* a file for its standard error; 0: this process's */
};

/* CKPT_ENOMEM, CKPT_ENOTFOUND. */
int child_start(struct child *c, const struct child_opts *o, struct ckpt_err *err);
/* Whether it has ended, with its exit status; 128 + N after signal N. */
bool child_ended(struct child *c, int *status);
/* Wait for a moment, in which the supervisor hears that work goes on. */
void child_pause(void);
/* Close the pipe to its input, if there is one: it has all. */
void child_hang_up(struct child *c);
#endif
