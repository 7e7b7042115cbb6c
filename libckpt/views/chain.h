/*
 * views/chain - a source and the views laid over it, step by step.
 *
 * A step replaces *src by a view of it, or leaves it: `return ckpt_view_cast(src, *src, ...)`. A
 * view takes the source beneath it and gives NULL when it fails, so no step needs cleanup.
 */
#ifndef CKPT_LIBCKPT_VIEWS_CHAIN_H
#define CKPT_LIBCKPT_VIEWS_CHAIN_H

#include "libckpt/view.h"

typedef int ckpt_chain_step(struct ckpt_source **src, void *ctx, struct ckpt_err *err);

/* Run the n steps in order.  When one fails, no later one runs, and *src is closed and NULL. */
int ckpt_chain_run(struct ckpt_source **src, ckpt_chain_step *const *step, size_t n, void *ctx,
                   struct ckpt_err *err);

#endif
