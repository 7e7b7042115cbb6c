/*
 * range - a remote file, fetched by the ranges that are read.
 *
 * The first request fetches a head of 128 KiB, more than the header of nearly every shard.  Other
 * small reads fetch pieces of growing size, which stay in memory; large reads fetch just their
 * range, which does not.  With CKPT_PROVE the file is fetched whole before more than 8 MiB of it
 * are read: into the cache, in several requests at a time; its digest is verified where one is
 * known, and earlier reads are compared with it.  A server without ranges sends the whole file at
 * once.
 *
 * All responses must be about one version of the file: the same size, and without a digest known
 * beforehand the same ETag (or date, where there is no strong ETag): CKPT_EFORMAT "changed".
 */
#ifndef CKPT_LIBCKPT_REMOTE_RANGE_H
#define CKPT_LIBCKPT_REMOTE_RANGE_H

#include "libckpt/file.h"
#include "libckpt/remote/http.h"

/* A remote file; files opened from it share the fetched pieces.  Any thread. */
struct range;

struct range_at {
    const char             *name;       /* for messages */
    const char             *url;
    const struct http_auth *auth;       /* or NULL; kept */
    uint64_t                size;       /* FIELD_NONE: not known yet */
    const char             *digest;     /* "sha256-<hex>", "sha1-<hex>" of a git blob, or "" */
    /* Called with the file, once it was fetched whole; or NULL. */
    void (*got)(const void *tree, const void *file, struct ckpt_file *whole);
    /* Called when the address is refused: asks whoever gave it for another one, and what
     * authenticates requests for it (kept); or NULL.  One thread at a time. */
    int (*renew)(const void *tree, const void *file, char url[HTTP_URL],
                 const struct http_auth **auth, struct ckpt_err *err);
    const void             *tree, *file;    /* kept */
};

int range_new(struct range **out, const struct range_at *at, struct ckpt_err *err);
void range_keep(struct range *r);
void range_drop(struct range *r);       /* NULL is accepted */
/* Use file, the copy on this host.  Takes file; call before the first read. */
void range_have(struct range *r, struct ckpt_file *file);
/* Learn the size and read the head, unless that is done; with CKPT_PROVE fetch a small file
 * whole. */
int range_head(struct range *r, unsigned flags, struct ckpt_err *err);
int range_file(struct ckpt_file **out, struct range *r, unsigned flags, struct ckpt_err *err);

#endif
