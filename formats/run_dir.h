/*
 * run_dir - the newest checkpoint in the folder of a training run.
 */
#ifndef CKPT_FORMATS_RUN_DIR_H
#define CKPT_FORMATS_RUN_DIR_H

#include "libckpt/format.h"

/*
 * Enter the newest checkpoint in a folder that no format knows, one level down; *entered says so,
 * and p->path is then a name in arena.  found: p was entered this way already.
 * trained: p has the run's final model too, and is entered all the same.
 * CKPT_EFORMAT "ambiguous", with a hint that names a folder, when the choice is not plain: several
 * trials, several ways of counting, or a newest checkpoint whose save did not end.
 */
int run_dir_enter(struct ckpt_place *p, bool found, bool trained, struct ckpt_arena *arena,
                  bool *entered, struct ckpt_err *err);
/*
 * The best checkpoint in a run's folder on this machine, or in an experiment of Ray with one run:
 * the one that trainer_state.json of the newest checkpoint, or of the run itself, names; of Ray
 * Train 2 the last of its index.  CKPT_ENOTFOUND where there is none.
 */
int run_dir_best(char path[4096], const char *run, struct ckpt_err *err);
/*
 * The newest checkpoint in a run's folder on this machine, itself and not a run above it: what the
 * index of Ray Train 2 names as its latest, else the highest checkpoint-<n>, else checkpoint_<n>.
 * False: it is no run's, or what the index names is not there.
 */
bool run_dir_last(char path[4096], const char *run);

#endif
