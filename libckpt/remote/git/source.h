/*
 * git/source - a commit of a git repository as a tree of files, those of Git LFS included.
 *
 *   git+https://host/owner/name[.git][@revision][/path]      git+http:// of this host
 *   git+ssh://[user@]host[:port]/owner/name.git[@revision][/path]
 *   git+file:///path/name.git[@revision][/path]              and the path of a bare repository
 *
 * The repository ends at the first component with an '@', else at the first that ends in .git, else
 * at the end, or on this host at the deepest folder that is a repository.  A revision is a tag, a
 * branch, another reference or a commit; without one it is HEAD's.
 *
 * From another host the objects of git are fetched into its mirror (git/mirror.h), and of LFS what
 * is read: into the cache, verified.  On this host both are read where they are.
 */
#ifndef CKPT_LIBCKPT_REMOTE_GIT_SOURCE_H
#define CKPT_LIBCKPT_REMOTE_GIT_SOURCE_H

#include "libckpt/remote/tree.h"

struct git_source_place {
    bool local;
    char url[4096];             /* for git_place_parse; or the path on this host */
    char revision[300];         /* "": HEAD's */
    char root[8192];            /* the address without the path, as it was written */
    char path[4096];            /* "" for the whole tree */
};

/* Whether address has one of those schemes. */
bool git_source_is(const char *address);
/* CKPT_EUSAGE when it has another form. */
int git_source_parse(struct git_source_place *p, const char *address, struct ckpt_err *err);
int git_source_open(struct tree **out, const struct git_source_place *p, struct ckpt_err *err);
/*
 * The address for a path into a bare repository on this host, such as "a/hub.git/config.json" or
 * "hub.git@v1"; false for any other path.
 */
bool git_source_of_path(char *address, size_t size, const char *path);

#endif
