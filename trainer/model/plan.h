/*
 * model/plan - which buffers a pass needs and when each is alive.
 */
#ifndef CKPT_TRAINER_MODEL_PLAN_H
#define CKPT_TRAINER_MODEL_PLAN_H

#include "trainer/model/pass.h"

/* Fill the model's plan, allocate its arena and hand out its addresses. */
int model_plan(struct model *m, struct ckpt_err *err);
/* The largest sizes of operations over n rows. */
struct op_limits model_limits(const struct model *m, int64_t n);

#endif
