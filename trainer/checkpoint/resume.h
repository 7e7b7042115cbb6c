/*
 * resume - read a checkpoint back, with all of it verified.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_RESUME_H
#define CKPT_TRAINER_CHECKPOINT_RESUME_H

#include "trainer/checkpoint/checkpoint.h"

/*
 * Weights, moments and counters from a checkpoint of any world size and stage, ours or one of
 * DeepSpeed, HF Trainer, accelerate, FSDP or torch.distributed.checkpoint, or weights from one
 * file; of an adapter only the trained tensors, since the base is loaded already.
 * state->global_step has position_step's step, or the step to go on from with a file.  Where there
 * is no optimizer state, a warning tells that it starts anew; a checkpoint of ours must have it,
 * unless it was saved with save_only_model.
 * Our own checkpoints are verified against their manifest during the load; proof_first verifies
 * the files read before it.  Collective.  CKPT_EMISMATCH when our own manifest has another seed
 * than c has, or other data unless settings say that it may.  *damaged, the same on all ranks: a
 * digest differs (CKPT_EFORMAT), and the loaded values must not be used.
 */
int resume_load(struct session *s, const char *path, const struct checkpoint *c,
                struct run_state *state, bool *damaged, struct ckpt_err *err);
/* Refuse what that would refuse before it reads weights and moments.  state becomes what the
 * checkpoint says.  Collective. */
int resume_check(struct session *s, const char *path, const struct checkpoint *c,
                 struct run_state *state, struct ckpt_err *err);
/* The weights alone, likewise verified, of a checkpoint that this run saved.  Collective. */
int resume_weights(struct session *s, const char *path, struct ckpt_err *err);

#endif
