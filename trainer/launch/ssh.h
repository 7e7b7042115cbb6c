/*
 * ssh - start this program on another host, with three pipes to it.
 */
#ifndef CKPT_TRAINER_LAUNCH_SSH_H
#define CKPT_TRAINER_LAUNCH_SSH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "libckpt/fail.h"

#define SSH_ENV "CKPT_SSH"              /* the program that does it; "ssh" */

/* Text that grows; zeroed to begin with, freed with ckpt_free. */
struct ssh_text { char *text; size_t n, cap; bool failed; };

void ssh_put(struct ssh_text *c, const char *text);
/*
 * The line that starts this program there: in the same folder, with `mark`=1, PATH and
 * LD_LIBRARY_PATH in its environment, without which nothing starts, and the arguments argv[1...].
 */
int ssh_command(struct ssh_text *c, const char *mark, char *const *argv, struct ckpt_err *err);

struct ssh {
    pid_t pid;                          /* 0: not started, or it has ended */
    int   in, out, err;                 /* -1: closed */
};

struct ssh_opts {
    const char     *host, *command;
    int64_t         port;               /* 0: as ssh is configured */
    const sigset_t *mask;               /* signals that it blocks */
};

/* ssh_close either way. */
int ssh_start(struct ssh *s, const struct ssh_opts *opts, struct ckpt_err *err);
/* Write to it.  Once it takes no more its input is closed. */
void ssh_say(struct ssh *s, const char *text);
/* Close its input. */
void ssh_hang_up(struct ssh *s);
/* Whether it has ended; then *status is as waitpid gives it. */
bool ssh_ended(struct ssh *s, int *status);
void ssh_kill(const struct ssh *s);
void ssh_close(struct ssh *s);

#endif
