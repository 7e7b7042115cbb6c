/*
 * run/trial - the output as Ray Train lays it out (`output_layout ray`).
 *
 *   OUTPUT/TorchTrainer_<id>_00000_0_<date>/     a run: a trial of the experiment OUTPUT
 *       checkpoint_<i>/                          its saves (checkpoint/naming.h)
 *       params.json                              its settings, as train_loop_config
 *       result.json                              a line a save: its name, and the newest figures
 *
 * and beside them what a run's folder has otherwise.  ray.tune.Result.from_path reads it, and
 * ray.train's of its first version; the second one's wants a snapshot of its own manager.
 *
 * Sources: ray 2.60 tune/experiment/trial.py (names), train/_internal/session.py (lines),
 * train/_internal/storage.py and air/result.py.
 */
#ifndef CKPT_TRAINER_RUN_TRIAL_H
#define CKPT_TRAINER_RUN_TRIAL_H

#include "trainer/comm/comm.h"
#include "trainer/run/settings.h"
#include "trainer/run/state.h"

/*
 * The folder of the run in s->output_dir: that of the checkpoint that `resume_from_checkpoint`
 * names, or of the newest one; else a new name.  Nothing is written.  Rank 0 chooses.  Collective.
 */
int trial_choose(char path[4096], const struct settings *s, struct comm *c, struct ckpt_err *err);
/* Write what tells that the folder s->output_dir is a trial.  Rank 0. */
int trial_begin(const struct settings *s, struct ckpt_err *err);
/* Add the line of a checkpoint that is complete; seconds of the run so far.  A file that cannot
 * grow is a warning.  Rank 0. */
void trial_saved(const struct settings *s, const struct run_state *state, const char *checkpoint,
                 int64_t step, double seconds);

#endif
