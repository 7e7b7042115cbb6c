/*
 * records/dir - which files of a directory are its records.
 *
 * A folder that Hugging Face's datasets saved says so in state.json, one of several splits in
 * dataset_dict.json; a repository of the Hub in README.md (records/card.h).  Elsewhere it is every
 * file named as data below the folder, in the order of their paths, of the kind that most files
 * have (.gz and the like do not count).  Which split a file belongs to follows from its path
 * (records/split.h).
 */
#ifndef CKPT_FORMATS_RECORDS_DIR_H
#define CKPT_FORMATS_RECORDS_DIR_H

#include "libckpt/file.h"

/* Names of files in *dir (yours to close), in arena; at least one.  split NULL: all files must be
 * of one split; config NULL: that which is meant without a name. */
int records_dir_list(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                     const char *config, const char *split, struct ckpt_arena *arena,
                     struct ckpt_err *err);
/* The same for the files of data below the folder path whose path in it is one of the pattern's. */
int records_dir_match(struct ckpt_dir **dir, const char ***name, size_t *n, const char *path,
                      const char *pattern, struct ckpt_arena *arena, struct ckpt_err *err);

#endif
