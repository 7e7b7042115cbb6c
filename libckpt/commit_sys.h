/*
 * commit_sys - the system calls that commit.c and outdir.c share, with their failure injection.
 */
#ifndef CKPT_COMMIT_SYS_H
#define CKPT_COMMIT_SYS_H

#include "libckpt/commit.h"

/* Sixteen random hex digits. */
void commit_nonce(char out[17]);
/* path -> the directory it lies in and its last component, which must be usable as a name. */
int commit_split(char *dir, size_t dir_size, char name[256], const char *path,
                 struct ckpt_err *err);
/* fsync; a failure is final. */
int commit_sync(int fd, const char *what, struct ckpt_err *err);
/* Rename within a directory; without replace an existing target gives -1 and EEXIST. */
int commit_rename(int dir_fd, const char *from, const char *to, bool replace);
/* Create name's successor in dir_fd (taken, on failure too); path is for messages. */
int commit_create_at(struct ckpt_out **out, int dir_fd, const char *name, const char *path,
                     unsigned flags, struct ckpt_err *err);

#endif
