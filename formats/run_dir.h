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

#endif
