/* copies - memory lent to a device for weights in 8 bits. */
#ifndef CKPT_COPIES_H
#define CKPT_COPIES_H

#include "trainer/model/params.h"
#include "trainer/ops/ops.h"

/*
 * Lend the device memory for the projections' weights in 8 bits, each as it lies and turned, until
 * it is closed; the weights must stay where they are.  Without that much memory nothing is lent,
 * and they are rounded at each use.  To be called last: what is left over is for a moment's needs.
 */
int copies_lend(struct device *dev, const struct params *params, struct ckpt_err *err);

#endif
