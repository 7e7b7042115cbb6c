/*
 * resume - reading a checkpoint back, all of it proved.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_RESUME_H
#define CKPT_TRAINER_CHECKPOINT_RESUME_H

#include "trainer/checkpoint/checkpoint.h"

/* How far the run of a checkpoint was: its trainer_state.json's global_step. */
int resume_step(int64_t *step, const char *path, struct ckpt_err *err);
/*
 * Weights, moments and counters from a checkpoint of any world size and stage, ours, DeepSpeed's
 * or HF Trainer's; of an adapter only what is trained, the base is there.  What is loaded has the
 * digests of our own manifest, proved beside the load; what is read before it is proof_first's.
 * Collective.  CKPT_EMISMATCH when our own manifest has other data or another seed than c
 * has.  *damaged, the same on all ranks: bytes do not have their digests (CKPT_EFORMAT), so that
 * nothing of what was loaded counts.
 */
int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, bool *damaged, struct ckpt_err *err);

#endif
