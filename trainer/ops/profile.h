/*
 * profile - where a step's time goes: every operation of a device, timed in its own order.
 *
 * While a profile is on it lies between the callers and the device's row.  Each operation ends
 * with a timestamp of the device; what lies between two of them belongs to the later operation, so
 * that the times add up to the whole, idle gaps included.  Results do not change.
 */
#ifndef CKPT_TRAINER_OPS_PROFILE_H
#define CKPT_TRAINER_OPS_PROFILE_H

#include <stdio.h>

#include "trainer/ops/ops.h"

struct profile;

/* From now on.  CKPT_ESTATE where a profile is on already. */
int profile_on(struct profile **out, struct device *dev, struct ckpt_err *err);
/* A table of operations, most time first: of a step, when steps passed since profile_on. */
void profile_print(struct profile *p, FILE *to, int64_t steps);
/* The device has its own row again.  NULL is legal. */
void profile_off(struct profile *p);

#endif
