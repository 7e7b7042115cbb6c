/*
 * train/push - publish the run's checkpoints while it goes: ckpt-push beside this tool, with their
 * paths on its input.
 *
 * Steps never wait for it.  A checkpoint is leased until it is published, so that save_total_limit
 * leaves it.  At the start ckpt-push only looks at the destination, while the ranks meet: a run
 * that nobody could publish ends before it trains.  The one that publishes is started with the
 * first checkpoint, and has a lock in the output folder until it ends: where an earlier try of the
 * run was killed, its own goes on with what it was given, and this one begins after it, so that no
 * older checkpoint is published after a newer one.
 */
#ifndef CKPT_TOOLS_TRAIN_PUSH_H
#define CKPT_TOOLS_TRAIN_PUSH_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct push;

/* url: as ckpt-push takes it; NULL: nothing is published.  Both strings outlive it.  dry: nothing
 * will be, and nothing is written there while the destination is looked at.  CKPT_ENOTFOUND: there
 * is no ckpt-push. */
int push_open(struct push **out, const char *url, const char *output_dir, bool dry,
              struct ckpt_err *err);
/*
 * Wait until ckpt-push has looked at the destination.  Its own error, where nothing can be
 * published there.  A network that is away does not end a try that has an earlier one's checkpoints
 * (report_saved_before): that is a warning.  All accept NULL.
 */
int push_ready(struct push *p, struct ckpt_err *err);
/* A checkpoint is complete. */
void push_put(struct push *p, const char *path);
/* Now and then: hand on what waits, and look whether it still runs. */
void push_look(struct push *p);
/* Wait until all is published.  Returns 0, or the status that ckpt-push ended with, which has been
 * a warning. */
int push_end(struct push *p);
void push_close(struct push *p);

#endif
