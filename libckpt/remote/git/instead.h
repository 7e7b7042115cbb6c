/*
 * git/instead - the addresses that a user's git configuration puts in the place of others.
 *
 * Source: git-config(1), url.<base>.insteadOf and url.<base>.pushInsteadOf.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_INSTEAD_H
#define CKPT_LIBCKPT_REMOTE_GIT_INSTEAD_H

#include "libckpt/remote/git/place.h"

/*
 * As git_place_parse, of the address that the configuration of user and system puts in its place:
 * the longest beginning that matches counts, and to push, pushInsteadOf before insteadOf.  "git+"
 * before the address does not count.
 */
int git_instead_parse(struct git_place *p, const char *address, bool push, struct ckpt_err *err);

#endif
