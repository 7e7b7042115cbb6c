/*
 * path - paths of users: a path on this host, or an address elsewhere, opened the same way.
 *
 * file:// is a path on this host; all other addresses are remote.h's, and a path into a bare
 * repository of git is one (remote/git/source.h).
 */
#ifndef CKPT_LIBCKPT_IO_PATH_H
#define CKPT_LIBCKPT_IO_PATH_H

#include "libckpt/file.h"

/* Whether path is a descriptor of this process, as a shell's <(command) names one: the link leads
 * to what whoever started the process has opened, not to what lies on a disk. */
bool ckpt_path_is_descriptor(const char *path);
/* A path on this host has no scheme; "-" is not special here. */
bool ckpt_path_is_remote(const char *path);
bool ckpt_path_ends_in(const char *path, const char *tail);
/* Whether path ends in one of these; NULL ends the list. */
bool ckpt_path_ends_in_any(const char *path, const char *const *tails);
/* The number that follows the stem to the end of a name, if it has at most 18 digits; else -1. */
int64_t ckpt_path_number(const char *name, const char *stem);
/* Both are false when nothing is there or it cannot be examined (opening reports why). */
bool ckpt_path_is_dir(const char *path);
bool ckpt_path_is_file(const char *path);

/* Make the directory at path on this host, and its parents, where they are missing.  CKPT_ECREATE
 * names the part that cannot be made. */
int ckpt_path_make_dirs(const char *path, struct ckpt_err *err);

/* Refuse what that would refuse as things are now, and make nothing.  first: the part that would
 * be made first; "": none is missing. */
int ckpt_path_dirs_ready(char *first, size_t size, const char *path, struct ckpt_err *err);

/* After "no such file": hint at hf:// where path is spelt like a name of the Hub and its first
 * part is not a local directory.  Returns err->code. */
int ckpt_path_hint_hub(const char *path, struct ckpt_err *err);

int ckpt_path_file(struct ckpt_file **out, const char *path, unsigned flags,
                   struct ckpt_err *err);
int ckpt_path_dir(struct ckpt_dir **out, const char *path, unsigned flags, struct ckpt_err *err);

#endif
