/*
 * git/lfs_place - the LFS server of a repository on another host, and what it is to be sent.
 *
 * In this order: lfs.url of git's configuration, lfs.url of the tree's .lfsconfig, what
 * `ssh host git-lfs-authenticate PATH OPERATION` prints for a repository by ssh, and the address of
 * the repository with .git/info/lfs.  The credential is sent only to the repository's own host.
 * Source: git-lfs docs/api/server-discovery.md, docs/man/git-lfs-config (3.7).
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_LFS_PLACE_H
#define CKPT_LIBCKPT_REMOTE_GIT_LFS_PLACE_H

#include "libckpt/remote/git/mirror.h"
#include "libckpt/remote/http.h"

struct lfs_place {
    char             url[HTTP_URL];
    char             lines[6000];       /* header lines of each request */
    struct http_auth auth;
};

/* operation: "upload" or "download". */
int lfs_place_find(struct lfs_place *l, struct git_mirror *m, const char *operation,
                   struct ckpt_err *err);
void lfs_place_forget(struct lfs_place *l);
/* lfs.url in the text of an .lfsconfig, or false. */
bool lfs_place_config(char url[HTTP_URL], const char *text);

#endif
