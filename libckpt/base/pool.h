/*
 * pool - worker threads over a list of items; the first error wins and stops the rest.
 */
#ifndef CKPT_LIBCKPT_BASE_POOL_H
#define CKPT_LIBCKPT_BASE_POOL_H

#include <stddef.h>

#include "libckpt/fail.h"

/* Work on item i; worker is 0..n_workers-1 and is never used by two calls at once. */
typedef int ckpt_pool_fn(void *ctx, size_t i, size_t worker, struct ckpt_err *err);

/*
 * Call fn for items 0..n-1, handed out in order, on n_workers threads (the caller is one; 1 runs
 * all in the caller).  Returns after all have stopped: 0, or the code of the error that came
 * first in time, whose record is copied to err.  No item is begun after an error.
 */
int ckpt_pool_run(size_t n_workers, size_t n, ckpt_pool_fn *fn, void *ctx, struct ckpt_err *err);
/* Workers to use when the user did not say: the CPUs this process may run on, at most max. */
size_t ckpt_pool_default(size_t max);

#endif
