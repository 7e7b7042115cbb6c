/*
 * resume - read a checkpoint back, with all of it verified.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_RESUME_H
#define CKPT_TRAINER_CHECKPOINT_RESUME_H

#include "trainer/checkpoint/checkpoint.h"

/* The step a checkpoint was saved at: global_step of its trainer_state.json. */
int resume_step(int64_t *step, const char *path, struct ckpt_err *err);
/*
 * Weights, moments and counters from a checkpoint of any world size and stage, ours, DeepSpeed's
 * or HF Trainer's; of an adapter only the trained tensors, since the base is loaded already.  Our
 * own checkpoints are verified against their manifest during the load; proof_first verifies the
 * files read before it.  Collective.  CKPT_EMISMATCH when our own manifest has other data or
 * another seed than c has.  *damaged, the same on all ranks: a digest differs (CKPT_EFORMAT), and
 * the loaded values must not be used.
 */
int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, bool *damaged, struct ckpt_err *err);

#endif
