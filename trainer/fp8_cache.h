/* trainer/fp8_cache - memory lent to a device for weights in 8 bits. */
#ifndef CKPT_TRAINER_FP8_CACHE_H
#define CKPT_TRAINER_FP8_CACHE_H

#include "trainer/model/params.h"
#include "trainer/ops/ops.h"

/*
 * Lend the device memory for the projections' weights in 8 bits, each as it lies and turned, until
 * it is closed; the weights must stay where they are.  Where `left`, what a plan leaves of the
 * device's room, is less, nothing is lent, and they are rounded at each use.  dry: only tell,
 * dev->fp8_cache_bytes is what would be lent.
 */
int fp8_cache_lend(struct device *dev, const struct params *params, uint64_t left, bool dry,
                struct ckpt_err *err);

#endif
