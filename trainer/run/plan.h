/*
 * run/plan - what a run needs, before it begins: memory of this host, rows, tokens, steps.
 */
#ifndef CKPT_TRAINER_RUN_PLAN_H
#define CKPT_TRAINER_RUN_PLAN_H

#include "trainer/run/data.h"

/*
 * Whether what is planned fits into this host's memory, where the ranks compute on the CPU: more
 * than it has is CKPT_ENOMEM with a hint, more than it has free a warning.  Collective.
 */
int run_plan_check(struct session *s, struct ckpt_err *err);
/* Elements that multiply, as transformers' floating_point_ops counts them: without embeddings. */
int64_t run_plan_numel(const struct params *p);
/* Tell rows, tokens, epochs and steps of the training data.  Many rows are tokenised in part. */
int run_plan_tell(const struct run_data *data, int64_t max_steps, struct ckpt_err *err);

#endif
