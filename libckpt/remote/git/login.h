/*
 * git/login - what git's credential helpers know about a host, asked once.
 *
 * `git credential fill` gets protocol, host, path and user name and prints a user name and a
 * password (git-credential(1), 2.39); approve and reject report what the host made of it.  The
 * token of the Hub serves for the Hub's own repositories.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_LOGIN_H
#define CKPT_LIBCKPT_REMOTE_GIT_LOGIN_H

#include "libckpt/remote/git/place.h"

struct git_login {
    char user[256], password[4096];     /* "" when nothing is known */
    bool by_helper;
};

/* Never fails: without a credential the request goes out without one. */
void git_login_find(struct git_login *l, const struct git_place *p);
/* The host accepted it, or did not. */
void git_login_report(const struct git_login *l, const struct git_place *p, bool accepted);
void git_login_forget(struct git_login *l);

#endif
