/*
 * cli_ahead - paths of a pipe, read and leased by a thread as they arrive.
 *
 * The next item is announced while an earlier one is worked on.  A lease (libckpt/io/lock.h) from
 * that moment on keeps a trainer from pruning what it has announced and nobody has read yet.
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
 * The next path, yours, with its lease (NULL where none could be had); NULL at the end of the
 * pipe.  Waits.  Errors are those of cli_lines_next, in the order of the lines.
 */
int cli_ahead_next(struct cli_ahead *a, char **path, struct ckpt_lock **lease,
                   struct ckpt_err *err);
/* Ends the thread, wherever it waits.  NULL is accepted. */
void cli_ahead_end(struct cli_ahead *a);

#endif
