/*
 * lfs_http - objects to a Git LFS server: batch, basic and multipart transfers, verify.
 *
 *   POST {lfs}/objects/batch   which objects the server lacks, and where their bytes go
 *   PUT  href                  one object, or one part of it; without our token
 *   POST href                  the parts of an object, with their ETags
 *   POST verify                whether it is there
 *
 * An object is multipart when its action's header has chunk_size: the other keys of digits are the
 * parts' addresses.  An address that has expired, or is refused with 403, is asked for again.
 *
 * Source: git-lfs docs/api/batch.md and basic-transfers.md (3.7), huggingface_hub 1.29 lfs.py.
 */
#ifndef CKPT_LIBCKPT_REMOTE_LFS_HTTP_H
#define CKPT_LIBCKPT_REMOTE_LFS_HTTP_H

#include "libckpt/file.h"
#include "libckpt/remote/http.h"
#include "libckpt/remote/journal.h"

struct lfs_object {
    const char *oid;            /* SHA-256 in hex */
    uint64_t    size;
    const char *name;           /* for messages */
};

struct lfs_server {
    struct http            *http;
    const char             *url;        /* of the server, without /objects/batch */
    const char             *name;       /* for messages */
    const char             *ref;        /* "main"; NULL: not named */
    const struct http_auth *auth;       /* for its origin; or NULL */
    struct journal         *journal;    /* or NULL */
    size_t                  streams;    /* transfers at once */
    /* Open object i to be read: each transfer opens it for itself.  Any thread. */
    int (*open)(void *ctx, size_t i, struct ckpt_file **out, struct ckpt_err *err);
    /* Bytes that were sent, or need not be.  Any thread; may be NULL. */
    void (*progress)(void *ctx, uint64_t bytes);
    /* Object i is on the server: sent, or there before.  Any thread; may be NULL. */
    void (*done)(void *ctx, size_t i, bool sent);
    void *ctx;
};

/* POST a question to the batch door; *out gets the answer, of any form. */
int lfs_batch(const struct lfs_server *s, json_t **out, const json_t *value, struct ckpt_err *err);

/*
 * Send the objects that the server lacks.  *sent gets the bytes of those.  CKPT_EFORMAT "changed"
 * when the bytes of an object are not those of its oid.
 */
int lfs_send(const struct lfs_server *s, const struct lfs_object *object, size_t n, uint64_t *sent,
             struct ckpt_err *err);

#endif
