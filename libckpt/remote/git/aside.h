/*
 * git/aside - stage the new objects of a commit outside the repository's object store.
 *
 * They are written to a folder of objects/ that git ignores, and move into the store when the
 * commit is made: a failed push leaves nothing, a killed one a folder that the next push removes.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_ASIDE_H
#define CKPT_LIBCKPT_REMOTE_GIT_ASIDE_H

#include <git2.h>

#include "libckpt/fail.h"

struct git_aside;

/* From now on new objects of repo are written aside. */
int git_aside_open(struct git_aside **out, git_repository *repo, struct ckpt_err *err);
/* Move all of them into the store, durably. */
int git_aside_move(struct git_aside *a, struct ckpt_err *err);
/* Remove the objects that were not moved.  Call before repo is freed; NULL accepted. */
void git_aside_close(struct git_aside *a);

#endif
