/* git_own - what a repository is, for git.c and mirror.c. */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_GIT_OWN_H
#define CKPT_LIBCKPT_REMOTE_GIT_GIT_OWN_H

#include <git2.h>

#include "libckpt/io/lock.h"
#include "libckpt/remote/git/aside.h"
#include "libckpt/remote/git/git.h"

struct ckpt_git {
    git_repository   *repo;
    struct git_aside *aside;        /* staged new objects, once there are some */
    git_index        *index;        /* the tree being built; in memory only */
    git_oid           parent;
    bool              has_parent;
    bool              created;      /* by us */
    struct ckpt_lock *lease;        /* keeps others that made it from removing it */
    char              ref[512];     /* refs/heads/... */
    char              dir[4096];
};

/* Fail with libgit2's message after the action that failed. */
int git_fail(struct ckpt_err *err, int code, const char *what);

#endif
