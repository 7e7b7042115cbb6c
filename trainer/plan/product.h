/*
 * product - how fast a device multiplies matrices of a model's sizes, by a short measurement.
 */
#ifndef CKPT_TRAINER_PLAN_PRODUCT_H
#define CKPT_TRAINER_PLAN_PRODUCT_H

#include "trainer/ops/ops.h"

struct arch;

/*
 * FLOP/s of linear_fwd from hidden_size to intermediate_size with so many rows, the best of those
 * timed in a fifth of a second.  0 where memory is short.
 */
int product_rate(double *rate, struct device *dev, const struct arch *arch, double rows,
                 struct ckpt_err *err);

#endif
