/*
 * model_find - the model or adapter that a user names: a run's folder means the newest checkpoint
 * in it, and errors quote a name as it was typed.
 */
#ifndef CKPT_TRAINER_RUN_MODEL_FIND_H
#define CKPT_TRAINER_RUN_MODEL_FIND_H

#include <stdbool.h>

#include "libckpt/fail.h"

/*
 * given, or the checkpoint it means.  An address elsewhere, and "-", is left as it is.
 * CKPT_ENOTFOUND with a hint when nothing is there, CKPT_EUNSUPPORTED for a file that is no
 * model, or one of another program, by its name.
 */
int model_find(char path[4096], const char *given, struct ckpt_err *err);
/* The directory whose config.json describes the weights at path, which may be a file; an archive is
 * its own. */
void model_dir(char dir[4096], const char *path);

#endif
