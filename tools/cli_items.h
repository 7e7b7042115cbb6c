/*
 * cli_items - what a tool works on: paths from the command line, or lines of standard input.
 *
 * Each item is leased (libckpt/io/lock.h) while it is worked on, and one that comes through a
 * pipe as soon as it is announced.
 *
 * Of a pipe the items are worked through to its end on a first SIGINT: Ctrl-C reaches every
 * process of a pipeline, and what a trainer saves because of it is still to be merged and pushed.
 * Another one, a second later, ends the process.
 */
#ifndef CKPT_TOOLS_CLI_ITEMS_H
#define CKPT_TOOLS_CLI_ITEMS_H

#include "tools/cli.h"

/*
 * The positional arguments, or lines of stdin when there are none or one is "-"; NUL-separated
 * with -0.  CKPT_ESTOPPED when a signal asked to stop and items are left, or may come.
 */
struct cli_items;

int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err);
/*
 * A checkpoint, an archive or something compressed may come on stdin instead of lines: then the
 * item is "-", stdin is a file from then on (spooled where it was a pipe), and *bytes is true.
 * Looking at stdin waits for its first bytes; a tool that does not call this takes lines only.
 */
int cli_items_bytes(struct cli_items *items, bool *bytes, struct ckpt_err *err);
/* The next item or NULL at the end; yours (ckpt_free).  Its lease lasts until the next call. */
int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err);
/* All that are left, for tools that work on them at once.  They and their leases last until the
 * items are closed. */
int cli_items_all(struct cli_items *items, const char *const **all, size_t *n,
                  struct ckpt_err *err);
void cli_items_close(struct cli_items *items);

/* Works on one item. */
typedef int cli_item_fn(void *ctx, const char *item, struct ckpt_err *err);
/*
 * Works on each.  One that fails is told at once and does not hide the others: *status is the exit
 * status of the first.  Returns what ends the list before its end: a signal, stdin or stdout.
 */
int cli_items_each(struct cli_items *items, struct cli *cli, cli_item_fn *fn, void *ctx,
                   int *status, struct ckpt_err *err);

#endif
