/*
 * commit_sys - what commit.c, outdir.c, ready.c and tree.c share: system calls with their failure
 * injection, names of unfinished files, and the lock that shows that their maker is alive.
 *
 * Names of unfinished files and directories: ".<name>.<nonce>.tmp" (a file), ".<name>.staging-
 * <nonce>" (a directory), ".trash-<name>-<nonce>" (a directory being removed).  The maker holds a
 * shared flock until the final name is given or the file is gone; a cleaner needs the exclusive
 * flock, so it can only remove leftovers of dead processes.  Where a file system has no flock
 * nothing is locked and nothing is cleaned.
 */
#ifndef CKPT_LIBCKPT_IO_COMMIT_SYS_H
#define CKPT_LIBCKPT_IO_COMMIT_SYS_H

#include "libckpt/commit.h"

#define COMMIT_NONCE 16                     /* hex digits */
#define COMMIT_TRIES 16                     /* names to try when a cleaner is faster */
#define COMMIT_STAGED (1u << 16)            /* a flag: the file is in a directory that will be
                                               synced as a whole */

/* Random hex digits, terminated. */
void commit_nonce(char out[COMMIT_NONCE + 1]);
/* Split path into its directory and last component, which must be usable as a name. */
int commit_split(char *dir, size_t dir_size, char name[256], const char *path,
                 struct ckpt_err *err);
/* Both at once, for who needs the directory's descriptor alone.  *fd is yours. */
int commit_open_parent(int *fd, char name[256], const char *path, int code, struct ckpt_err *err);
/* name, or a shorter stand-in when prefix and suffix would make it too long. */
const char *commit_short(const char *name);
/* Open the directory that path is in; -1 with err filled.  code: returned when it is absent. */
int commit_parent(const char *dir, const char *path, int code, struct ckpt_err *err);
/* Refuse what has the name in a folder already: a file that may not be replaced, or anything but,
 * with over, a directory.  path is for messages. */
int commit_check_file(int dir_fd, const char *name, const char *path, unsigned flags,
                      struct ckpt_err *err);
int commit_check_dir(int parent, const char *name, const char *path, bool over,
                     struct ckpt_err *err);
/* fsync; a failure is final.  File systems that cannot sync a directory are forgiven. */
int commit_sync(int fd, const char *what, struct ckpt_err *err);
int commit_sync_dir(int fd, const char *what, struct ckpt_err *err);
/* Rename within a directory; -1 and EEXIST when the target exists and replace is false. */
int commit_rename(int dir_fd, const char *from, const char *to, bool replace);
/* Create name's successor in dir_fd (taken, on failure too); path is for messages. */
int commit_create_at(struct ckpt_out **out, int dir_fd, const char *name, const char *path,
                     unsigned flags, struct ckpt_err *err);

/*
 * Move the file at path, open as fd, into an empty output: it becomes the one that is committed,
 * with the rights that a new file has there.  False, with nothing done, where it would stay another
 * (its group, its access list), or has other names, or is open elsewhere, or cannot be moved.
 */
bool commit_adopt(struct ckpt_out *out, const char *path, int fd);

/* Digest the file while it is written, if it reserves `least` bytes or more: see follow.h. */
void commit_follow(struct ckpt_out *out, uint64_t least);

/* Write the bytes to a new, empty output, and commit or abort it. */
int commit_bytes(struct ckpt_out *out, const void *bytes, size_t n, struct ckpt_err *err);

/* Lock fd, just created as name in dir_fd.  False when a cleaner was faster: create another. */
bool commit_hold(int dir_fd, const char *name, int fd);
/* True when name in dir_fd is still the file or directory open as fd. */
bool commit_is(int dir_fd, const char *name, int fd);
/*
 * Remove leftovers of dead processes in dir_fd, named head + nonce + tail; with any, other
 * characters may stand between head and nonce.  Those that cannot be removed stay.
 */
void commit_leftovers(int dir_fd, const char *head, const char *tail, bool any);
/* Remove everything below the directory fd, following no link.  -1 and errno on failure. */
int commit_tree_empty(int fd);

#endif
