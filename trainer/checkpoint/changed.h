/*
 * checkpoint/changed - what a resumed run does otherwise than the run that saved its checkpoint, by
 * training_args.bin and trainer_state.json, ours or HF Trainer's.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_CHANGED_H
#define CKPT_TRAINER_CHECKPOINT_CHANGED_H

#include "trainer/optim/schedule.h"
#include "trainer/run/settings.h"
#include "trainer/run/state.h"

/*
 * A warning for each setting that changes updates from here on.  schedule and state are those of
 * the resumed run, of so many ranks; files that are not there, or cannot be read, say nothing.
 */
void changed_tell(const char *path, const struct settings *s, const struct schedule *schedule,
                  const struct run_state *state, int world_size);

#endif
