/*
 * commit_sys - what commit.c, outdir.c and tree.c share: system calls with their failure
 * injection, names of what is unfinished, and the lock that says its maker lives.
 *
 * Unfinished things have names of their own: ".<name>.<nonce>.tmp" (a file), ".<name>.staging-
 * <nonce>" (a directory), ".trash-<name>-<nonce>" (a directory being removed).  Whoever makes
 * one holds a shared flock on it until it has its final name or is gone; a cleaner needs the
 * exclusive one, so it can only take what dead processes left.  Where a file system has no
 * flock nothing is locked and nothing is cleaned.
 */
#ifndef CKPT_LIBCKPT_IO_COMMIT_SYS_H
#define CKPT_LIBCKPT_IO_COMMIT_SYS_H

#include "libckpt/commit.h"

#define COMMIT_NONCE 16                     /* hex digits */
#define COMMIT_TRIES 16                     /* names to try when a cleaner is faster */
#define COMMIT_STAGED (1u << 16)            /* a flag: lies in a directory that is synced whole */

/* Random hex digits, terminated. */
void commit_nonce(char out[COMMIT_NONCE + 1]);
/* path -> the directory it lies in and its last component, which must be usable as a name. */
int commit_split(char *dir, size_t dir_size, char name[256], const char *path,
                 struct ckpt_err *err);
/* name, or a stand-in when it is too long for what is put around it. */
const char *commit_short(const char *name);
/* The directory path lies in, opened, or -1 with err filled in (code: what an absent one is). */
int commit_parent(const char *dir, const char *path, int code, struct ckpt_err *err);
/* fsync; a failure is final.  Of a directory: a file system that cannot is forgiven. */
int commit_sync(int fd, const char *what, struct ckpt_err *err);
int commit_sync_dir(int fd, const char *what, struct ckpt_err *err);
/* Rename within a directory; without replace an existing target gives -1 and EEXIST. */
int commit_rename(int dir_fd, const char *from, const char *to, bool replace);
/* Create name's successor in dir_fd (taken, on failure too); path is for messages. */
int commit_create_at(struct ckpt_out **out, int dir_fd, const char *name, const char *path,
                     unsigned flags, struct ckpt_err *err);

/* Write the bytes to an output that has none yet, and commit or abort it. */
int commit_bytes(struct ckpt_out *out, const void *bytes, size_t n, struct ckpt_err *err);

/* Hold fd, just made as name in dir_fd.  False when a cleaner was faster: make another. */
bool commit_hold(int dir_fd, const char *name, int fd);
/* True when name in dir_fd is what fd is open on. */
bool commit_is(int dir_fd, const char *name, int fd);
/*
 * Remove what dead processes left in dir_fd under names head + nonce + tail; with any, other
 * characters may stand between head and nonce.  What cannot be removed stays.
 */
void commit_leftovers(int dir_fd, const char *head, const char *tail, bool any);
/* Remove all that lies below the directory fd, following no link.  -1 and errno on failure. */
int commit_tree_empty(int fd);

#endif
