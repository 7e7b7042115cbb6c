/*
 * checkpoint/naming - what the folder of a checkpoint is called in the folder of its run.
 *
 *   checkpoint-<step>      everywhere, as HF Trainer names them
 *   checkpoint_<saves>     in a trial of Ray Train, a folder TorchTrainer_*: six digits or more,
 *                          the saves counted from 0; which step that is of stands inside
 *
 * Source: ray 2.60 train/_internal/storage.py, _get_checkpoint_dir_name.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_NAMING_H
#define CKPT_TRAINER_CHECKPOINT_NAMING_H

#include <stdbool.h>
#include <stdint.h>

#define NAMING_TRIAL "TorchTrainer_"    /* what the name of a trial begins with */

/* Whether folder is a trial: by its own name, whoever made it. */
bool naming_is_trial(const char *folder);
/* The step of the checkpoint called name in folder; -1: it is none, or tells no step. */
int64_t naming_step(const char *folder, const char *name);
/* Where the checkpoint of step lies in folder, or is to lie; returns path. */
char *naming_path(char path[4096], const char *folder, int64_t step);
/* The last part of a path, without slashes at its end: up to 255 bytes; returns name. */
char *naming_last(char name[256], const char *path);

#endif
