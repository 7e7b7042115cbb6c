/*
 * plan - what a run needs, before it begins: memory of this host, rows, tokens, steps.
 */
#ifndef CKPT_TRAINER_PLAN_PLAN_H
#define CKPT_TRAINER_PLAN_PLAN_H

#include "trainer/run/data.h"

/*
 * Open the data, and choose how memory is used for its batches; base is the model below an adapter
 * or "".  With auto_find_batch_size the micro-batch of set shrinks until one fits.  Collective.
 */
int plan_open(struct run_data *data, struct settings *set, struct session *s,
                  const char *base, const volatile int *stop, struct ckpt_err *err);
/*
 * Whether what is planned fits into this host's memory, where the ranks compute on the CPU: more
 * than it has is CKPT_ENOMEM with a hint, more than it has free a warning.  Collective.
 */
int plan_check(struct session *s, struct ckpt_err *err);
/* Bytes of this host that are left for each of its ranks beside what the plan takes, on the rank
 * that has least; after plan_check.  Collective. */
uint64_t plan_spare(struct session *s);
/* Elements that multiply, as transformers' floating_point_ops counts them: without embeddings. */
int64_t plan_numel(const struct params *p);
/* Bytes that a rank takes of this host: those of settings that put them there, and on CPUs all. */
uint64_t plan_host(const struct session *s);

#endif
