/*
 * cli_items - the inputs of a tool: paths from the command line, or lines of standard input.
 *
 * Each item is leased (libckpt/io/lock.h) while it is worked on; an item from a pipe is leased as
 * soon as it is announced.
 *
 * After a first SIGINT the items of a pipe are still worked through to its end: Ctrl-C reaches
 * every process of a pipeline, and the checkpoint that a trainer then saves must still be merged
 * and pushed.  Another SIGINT, a second later, ends the process.
 */
#ifndef CKPT_TOOLS_CLI_ITEMS_H
#define CKPT_TOOLS_CLI_ITEMS_H

#include "tools/cli.h"

/*
 * The positional arguments, or lines of stdin when there are none or one is "-"; NUL-separated
 * with -0.  CKPT_ESTOPPED when a signal asked to stop and items are left or may still come.
 */
struct cli_items;

/* Refuse paths from standard input where an option has read it; before other work of a tool. */
int cli_items_check(char *const *arg, int n_arg, struct ckpt_err *err);
int cli_items_open(struct cli_items **out, char **arg, int n_arg, bool nul, struct ckpt_err *err);
/*
 * Allow a checkpoint, an archive or compressed data on stdin instead of lines: then the item is
 * "-", stdin is seekable from then on (spooled where it was a pipe), and *bytes is true.  This
 * waits for stdin's first bytes; a tool that does not call it takes lines only.
 */
int cli_items_bytes(struct cli_items *items, bool *bytes, struct ckpt_err *err);
/* From here on the folder of a run means the best checkpoint in it (formats/run_dir.h), also where
 * such a folder comes as a line of a file; paths from a pipe stay as they are. */
void cli_items_best(struct cli_items *items);
/* The next item or NULL at the end; yours (ckpt_free).  Its lease lasts until the next call. */
int cli_items_next(struct cli_items *items, char **out, struct ckpt_err *err);
/* All remaining items, for tools that process them together.  They and their leases last until
 * the items are closed. */
int cli_items_all(struct cli_items *items, const char *const **all, size_t *n,
                  struct ckpt_err *err);
/* Whether another item can be had without waiting. */
bool cli_items_waiting(const struct cli_items *items);
void cli_items_close(struct cli_items *items);

/* Works on one item. */
typedef int cli_item_fn(void *ctx, const char *item, struct ckpt_err *err);
/*
 * Call fn on each item.  A checkpoint of a pipe that was pruned meanwhile is skipped with a
 * warning; another failure is reported at once and the other items are still processed:
 * *status is the exit status of the first failure.  Returns an error that ends the list early: a
 * signal, stdin or stdout.
 */
int cli_items_each(struct cli_items *items, struct cli *cli, cli_item_fn *fn, void *ctx,
                   int *status, struct ckpt_err *err);

#endif
