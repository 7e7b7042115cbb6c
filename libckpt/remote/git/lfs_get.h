/* git/lfs_get - where the objects of a Git LFS server are: batch with "download". */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_LFS_GET_H
#define CKPT_LIBCKPT_REMOTE_GIT_LFS_GET_H

#include "libckpt/remote/lfs_action.h"

#define LFS_GET_OBJECTS 100u            /* of one request */

/* One object, where it is and how it is asked for. */
struct lfs_get {
    struct lfs_action action;           /* href NULL: the server does not have it */
    struct http_auth  auth;             /* the header lines of the action, for its own origin */
    char              why[200];         /* what the server says of an absent one */
};

/* Ask about n objects, LFS_GET_OBJECTS at most.  open and progress of s are not used. */
int lfs_get_ask(const struct lfs_server *s, const struct lfs_object *object, size_t n,
                struct lfs_get *get, struct ckpt_arena *arena, struct ckpt_err *err);

#endif
