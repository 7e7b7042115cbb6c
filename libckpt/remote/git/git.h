/*
 * git - one commit on a branch of a bare repository on this host, through libgit2.
 *
 * Nothing is checked out: blobs go into the repository's object store, a tree is made from the
 * parent's tree and the changes, and one reference update (which fails when somebody else moved
 * the branch) publishes it.  Hooks, filters and user configuration are ignored.  Until then new
 * objects are kept aside (git/aside.h).
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_GIT_H
#define CKPT_LIBCKPT_REMOTE_GIT_GIT_H

#include <stdbool.h>
#include <stddef.h>

#include "libckpt/base/buf.h"
#include "libckpt/file.h"

#define CKPT_GIT_ID 41          /* hex digits of an object id, and a terminator */

struct ckpt_git;

/* True when path looks like a repository: bare, or a work tree's .git. */
bool ckpt_git_is_repository(const char *path);
/* Check the arguments of a commit before anything is opened: CKPT_EUSAGE.  branch and message may
 * be NULL. */
int ckpt_git_check(const char *branch, const char *message, const char *author,
                   struct ckpt_err *err);
/* Open a repository; create makes a bare one when path does not exist. */
int ckpt_git_open(struct ckpt_git **out, const char *path, bool create, struct ckpt_err *err);
void ckpt_git_close(struct ckpt_git *g);
/* Close after a failure: a repository that we created and that has no branch is removed. */
void ckpt_git_discard(struct ckpt_git *g);
/* The directory that holds objects/ and refs/, without a slash at the end. */
const char *ckpt_git_dir(const struct ckpt_git *g);

/*
 * Begin a commit on branch (NULL: the one HEAD names).  The tree starts as the branch's newest,
 * or empty for a new branch.  Never CKPT_ENOTFOUND: branches are created.
 */
int ckpt_git_begin(struct ckpt_git *g, const char *branch, struct ckpt_err *err);
/* Put a file of these bytes at path.  CKPT_EREFUSED when it is not clean, or leads into .git. */
int ckpt_git_put(struct ckpt_git *g, const char *path, const void *bytes, size_t n,
                 struct ckpt_err *err);
/* Called with the number of bytes done of the current file.  May be NULL. */
typedef void ckpt_git_progress(void *ctx, uint64_t bytes);
/* The same for a file of any size, in pieces. */
int ckpt_git_put_file(struct ckpt_git *g, const char *path, const struct ckpt_file *file,
                      ckpt_git_progress *progress, void *ctx, struct ckpt_err *err);
/* CKPT_EREFUSED when no file of a commit may have this path. */
int ckpt_git_check_path(const char *path, struct ckpt_err *err);
/* Append the bytes of the file at path to out, whose limit bounds them. */
int ckpt_git_read(struct ckpt_buf *out, const struct ckpt_git *g, const char *path,
                  struct ckpt_err *err);
/* Whether the tree has path. */
bool ckpt_git_has(const struct ckpt_git *g, const char *path);
/* The commit that the branch was at when this one began; "" for a new branch. */
void ckpt_git_parent(const struct ckpt_git *g, char id[CKPT_GIT_ID]);
/* The id of the file at path, as the tree has it; "" where there is none. */
void ckpt_git_blob(const struct ckpt_git *g, const char *path, char id[CKPT_GIT_ID]);
/* The id that a file of these bytes has. */
int ckpt_git_hash(char id[CKPT_GIT_ID], const void *bytes, size_t n, struct ckpt_err *err);
/* The i-th path of the tree, or NULL after the last; borrowed until the next change. */
const char *ckpt_git_path(const struct ckpt_git *g, size_t i);
int ckpt_git_remove(struct ckpt_git *g, const char *path, struct ckpt_err *err);
/*
 * Commit.  id gets the new commit, or the parent when the tree is the parent's (*changed is then
 * false).  author is "Name <mail>".  CKPT_ESTOPPED when the branch moved meanwhile: begin again.
 */
int ckpt_git_commit(struct ckpt_git *g, const char *message, const char *author,
                    char id[CKPT_GIT_ID], bool *changed, struct ckpt_err *err);

#endif
