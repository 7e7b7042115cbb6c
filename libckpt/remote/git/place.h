/*
 * git/place - addresses of repositories on other hosts, as git writes them.
 *
 *   https://host/a/b.git, git+https://host/a/b     ssh://user@host:port/a/b.git, git+ssh://...
 *   user@host:a/b.git                              host:a/b.git
 *
 * A user name in an https address is kept for the credential, a password is refused: it would be
 * in the list of processes and in logs.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_PLACE_H
#define CKPT_LIBCKPT_REMOTE_GIT_PLACE_H

#include <stdbool.h>

#include "libckpt/fail.h"

struct git_place {
    char url[4096];             /* for libgit2: https://, ssh://, user@host:path */
    bool ssh;
    char host[256];             /* with its port, where one is named */
    char user[128];             /* or "" */
    char path[2048];            /* "a/b.git", for ssh as the other host sees it */
};

/* Whether git would take the address for a repository on another host. */
bool git_place_is(const char *address);
/* CKPT_EUSAGE when it is none. */
int git_place_parse(struct git_place *p, const char *address, struct ckpt_err *err);

#endif
