/*
 * node - what the launcher of several hosts and the supervisor on each of them tell each other.
 *
 * The launcher (hosts.h) starts the program there with CKPT_NODE in its environment, and writes
 * lines to its standard input, which no other user sees as they would see arguments:
 *
 *    env NAME=VALUE                                   set that variable; any number of them
 *    ranks FIRST N WORLD SAVED PORT MASTER WORD       start N ranks, of which the first is FIRST
 *    signal N                                         pass that signal on
 *
 * Its end ends the ranks at once.  Lines of standard error that begin with NODE_MARK are the
 * answers, all others are for people:
 *
 *    fail CODE REASON TEXT HINT                       a failure; NODE_SEP between its fields
 *    end STATUS AGAIN STEP SAVING SAVED               the end, as in struct restart_end
 */
#ifndef CKPT_TRAINER_LAUNCH_NODE_H
#define CKPT_TRAINER_LAUNCH_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/fail.h"
#include "trainer/launch/launch.h"
#include "trainer/launch/restart.h"

#define NODE_ENV  "CKPT_NODE"
#define NODE_MARK '\036'
#define NODE_SEP  '\037'

struct node_ranks {
    struct launch_place place;
    int64_t             n;              /* ranks here */
    char                master[256], word[65];
};

/* Whether a launcher started this process and has yet to be read, or was. */
bool node_started(void);
bool node_is(void);
/* Read standard input up to the ranks.  CKPT_ECOMM when it ends before, CKPT_ECONFIG for a line
 * that is none of those above. */
int node_read(struct node_ranks *node, struct ckpt_err *err);
/* The number in "signal N" of a signal that is passed on, else 0. */
int node_signal(const char *line);
/* Write an answer; for struct supervise_opts. */
void node_tell(void *unused, const struct ckpt_err *err);
void node_ended(void *unused, const struct restart_end *end);
/* The launcher's: take an answer, without its mark, into end.  False: it is none. */
bool node_answer(struct restart_end *end, const char *line);

#endif
