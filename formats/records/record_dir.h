/*
 * record_dir - which files of a directory are its records.
 *
 * A folder that Hugging Face's datasets saved says so in state.json; elsewhere it is every file
 * that is named as data, in name order, in the folder itself or, where it has none, in data/.
 * Files of several splits are never taken together.
 */
#ifndef CKPT_RECORD_DIR_H
#define CKPT_RECORD_DIR_H

#include "libckpt/file.h"

/* Names of files in *dir (yours to close), in arena; at least one. */
int record_dir_list(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                    struct ckpt_arena *arena, struct ckpt_err *err);

#endif
