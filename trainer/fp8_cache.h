/* trainer/fp8_cache - memory lent to a device for 8-bit weights. */
#ifndef CKPT_TRAINER_FP8_CACHE_H
#define CKPT_TRAINER_FP8_CACHE_H

#include "trainer/model/params.h"
#include "trainer/ops/ops.h"

/*
 * Lend the device memory for the projections' weights in 8 bits, in both layouts, until it is
 * closed; the weights must stay at their addresses.  If `left`, the memory that a plan leaves
 * free, is too small, nothing is lent, and weights are rounded at each use. dry: only set
 * dev->fp8_cache_bytes.
 */
int fp8_cache_lend(struct device *dev, const struct params *params, uint64_t left, bool dry,
                struct ckpt_err *err);

#endif
