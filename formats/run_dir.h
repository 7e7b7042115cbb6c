/*
 * formats/run_dir - folders of a training run that hold checkpoints, and which of these is the
 * newest.
 */
#ifndef CKPT_FORMATS_RUN_DIR_H
#define CKPT_FORMATS_RUN_DIR_H

#include "libckpt/format.h"

/*
 * From a folder that no format knows to the newest checkpoint in it, one level down, and say so
 * in *entered; p->path then is a name in arena.  found: p was entered so already.
 * CKPT_EFORMAT "ambiguous", with a hint that names a folder, when it is not plain which is meant:
 * several trials, several ways of counting, a newest one whose save did not end.
 */
int run_dir_enter(struct ckpt_place *p, bool found, struct ckpt_arena *arena, bool *entered,
                  struct ckpt_err *err);

#endif
