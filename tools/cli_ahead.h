/*
 * cli_ahead - read and lease the paths of a pipe in a thread as they arrive.
 *
 * The next item may be announced while an earlier one is still worked on.  A lease
 * (libckpt/io/lock.h) from that moment on keeps a trainer from pruning checkpoints that were
 * announced but not read yet.  A line leaves the pipe after that: until then the trainer itself
 * keeps the checkpoint (tools/train/announce.h).
 */
#ifndef CKPT_TOOLS_CLI_AHEAD_H
#define CKPT_TOOLS_CLI_AHEAD_H

#include "libckpt/io/lock.h"
#include "tools/cli_lines.h"

struct cli_ahead;

/* Start reading standard input; n bytes at head, kept until the end, come first. */
int cli_ahead_start(struct cli_ahead **out, int end, const unsigned char *head, size_t n,
                    struct ckpt_err *err);
/*
 * The next path, yours, with its lease (NULL if none could be had); NULL at the end of the pipe.
 * Waits.  Errors are those of cli_lines_next, in the order of the lines.
 */
int cli_ahead_next(struct cli_ahead *a, char **path, struct ckpt_lock **lease,
                   struct ckpt_err *err);
/* Whether a path is there already, behind the last one that was given. */
bool cli_ahead_waits(struct cli_ahead *a);
/* End the thread, wherever it waits.  NULL is accepted. */
void cli_ahead_end(struct cli_ahead *a);

#endif
