/*
 * git/mirror - a branch of a repository on another host: fetched into a bare repository of the
 * cache, committed to there (git.h), and sent.
 *
 * The mirror is $CKPT_CACHE/git/<digest of the address>, kept between runs so that history is
 * fetched once, and locked while it is in use.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_MIRROR_H
#define CKPT_LIBCKPT_REMOTE_GIT_MIRROR_H

#include "libckpt/remote/git/git.h"
#include "libckpt/remote/git/login.h"
#include "libckpt/remote/git/place.h"

struct git_mirror {
    struct git_place place;
    struct git_login login;
    struct ckpt_git *git;
    char             branch[400];
    int              lock;
    bool             has_login;         /* login was looked for */
    bool             used_login;        /* the host asked for it */
};

/* What is known about the host; looked for at the first call, which may run a helper. */
const struct git_login *git_mirror_login(struct git_mirror *m);

/* Open the mirror of a repository; nothing is fetched yet.  branch may be NULL: the host's own. */
int git_mirror_open(struct git_mirror *m, const struct git_place *p, const char *branch,
                    struct ckpt_err *err);
void git_mirror_close(struct git_mirror *m);
/*
 * Fetch the branch, and begin a commit on it (ckpt_git_begin).  CKPT_ENOTFOUND, CKPT_EREFUSED
 * (credentials), CKPT_EDEVICE (no connection).
 */
int git_mirror_begin(struct git_mirror *m, struct ckpt_err *err);
/*
 * Fetch what revision names on the host: a tag, a branch, another reference, a commit in 40 digits;
 * "": what HEAD is there.  id gets the commit.  CKPT_ENOTFOUND where there is none.
 */
int git_mirror_fetch(struct git_mirror *m, const char *revision, char id[CKPT_GIT_ID],
                     struct ckpt_err *err);
/* Others may use the mirror now; objects that were fetched stay readable. */
void git_mirror_unlock(struct git_mirror *m);
/* Send the commit that the branch is at now.  CKPT_ESTOPPED when the host's branch has moved:
 * begin again. */
int git_mirror_send(struct git_mirror *m, struct ckpt_err *err);

#endif
