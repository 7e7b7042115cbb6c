/*
 * train/announce - the paths of checkpoints on standard output, for those who read it.
 *
 * A checkpoint is leased (libckpt/io/lock.h) until a reader of a pipe has taken its line out, so
 * that save_total_limit leaves what nobody has seen yet; tools of this house have a lease of their
 * own by then (tools/cli_ahead.h).  Lines that a full pipe does not take wait here: no step waits
 * for a reader.
 */
#ifndef CKPT_TOOLS_TRAIN_ANNOUNCE_H
#define CKPT_TOOLS_TRAIN_ANNOUNCE_H

#include "tools/cli.h"

struct announce;

/* Of a run that keeps `limit` checkpoints; 0: all. */
int announce_open(struct announce **out, struct cli *cli, int64_t limit, struct ckpt_err *err);
/* A checkpoint is complete.  A reader that left, or a full disk, is a warning. */
void announce_put(struct announce *a, const char *path);
/* Now and then: print what waits, as far as there is space, and see what was read. */
void announce_look(struct announce *a);
/* Print all that waits, however long a reader takes.  Returns why standard output failed, if it
 * did.  Takes a; NULL accepted. */
int announce_end(struct announce *a, struct ckpt_err *err);

#endif
