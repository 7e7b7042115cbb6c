/*
 * position - where a saved run was: its steps, epoch and learning rate, whichever program saved it.
 *
 *   trainer_state.json     ours and HF Trainer's
 *   facts of the shards    DeepSpeed's engine (global_steps), torch.distributed.checkpoint (step)
 *   the optimizer's count  accelerate's save_state, FSDP
 *   the number in a name   checkpoint-500, step_500
 */
#ifndef CKPT_TRAINER_CHECKPOINT_POSITION_H
#define CKPT_TRAINER_CHECKPOINT_POSITION_H

#include "libckpt/file.h"
#include "libckpt/source.h"
#include "trainer/optim/groups.h"
#include "trainer/run/settings.h"
#include "trainer/run/state.h"

/* The step of the checkpoint at path.  CKPT_ENOTFOUND: it is said nowhere. */
int position_step(int64_t *step, const char *path, struct ckpt_err *err);
/* What trainer_state.json says; *found: there is one.  Without it state stays as it is. */
int position_read(struct run_state *state, bool *found, struct ckpt_dir *dir, struct ckpt_err *err);
/*
 * What the saved schedule says: state->base_lr, the rates of groups (set in them), and the steps it
 * has done: -1 where it does not say so, or counts otherwise than state->global_step.
 */
int position_schedule(struct run_state *state, const struct optim_groups *groups, int64_t *done,
                      struct ckpt_dir *dir, struct ckpt_err *err);
/* The updates that an open checkpoint's optimizer counts; -1: it does not say. */
int position_updates(int64_t *updates, struct ckpt_source *src, struct ckpt_err *err);

#endif
