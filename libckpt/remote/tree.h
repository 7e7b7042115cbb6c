/*
 * tree - the files of a remote place, seen as a directory.
 *
 * A place is listed once; its directories follow from the paths of its files.  The list stays for
 * the life of the process, so that a path opened again shows the same state and costs no request.
 */
#ifndef CKPT_LIBCKPT_REMOTE_TREE_H
#define CKPT_LIBCKPT_REMOTE_TREE_H

#include <pthread.h>

#include "libckpt/file.h"
#include "libckpt/remote/range.h"

#define TREE_MAX_FILES 1048576u

/* One file.  The tree owns its strings. */
struct tree_file {
    const char   *path;         /* clean, unlike all others */
    uint64_t      size;         /* FIELD_NONE: unknown until it is opened */
    const char   *digest;       /* see range_at; "" when unknown */
    struct range *range;        /* set once the file was opened */
};

struct tree {
    char             *name;     /* "hf://owner/name": prefix of paths in messages */
    struct ckpt_arena arena;
    struct tree_file *file;     /* sorted by path when the tree is ready */
    size_t            n, cap;
    pthread_mutex_t   lock;     /* guards the ranges, and arena once the tree is ready */
    /* The address of a file; *have is its copy on this host, else NULL. */
    int (*locate)(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err);
    /* A file is on this host, fetched or found.  Any thread; or NULL. */
    void (*got)(const struct tree *t, const struct tree_file *f, struct ckpt_file *whole);
    const struct http_auth *auth;   /* or NULL; kept */
    /* The same for one file that was located; or NULL: auth is for all. */
    const struct http_auth *(*auth_of)(const struct tree *t, const struct tree_file *f);
    /* Another address of a file whose address is refused, and its authentication, in the arena,
     * which is locked meanwhile; or NULL: addresses do not expire. */
    int (*renew)(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                 const struct http_auth **auth, struct ckpt_err *err);
    void             *self;     /* argument of locate, in the arena */
};

int tree_new(struct tree **out, const char *name, struct ckpt_err *err);
void tree_free(struct tree *t);
/* Paths that are not clean are left out with a warning: they could lead out of a directory. */
int tree_add(struct tree *t, const char *path, uint64_t size, const char *digest,
             struct ckpt_err *err);
/* All files are added.  CKPT_EPROTOCOL when a path occurs twice, or a file is a folder too. */
int tree_ready(struct tree *t, struct ckpt_err *err);

/* Whether path is absent from both, or a file of one digest and size in both. */
bool tree_same(const struct tree *a, const struct tree *b, const char *path);
/* Type of rel: 0 nothing, 1 a file, 2 a directory; "" is the directory itself. */
int tree_kind(const struct tree *t, const char *rel);
int tree_open_file(struct ckpt_file **out, struct tree *t, const char *rel, unsigned flags,
                   struct ckpt_err *err);
/* Open directory rel of the tree, which outlives it. */
int tree_open_dir(struct ckpt_dir **out, struct tree *t, const char *rel, const char *path,
                  unsigned flags, struct ckpt_err *err);

#endif
