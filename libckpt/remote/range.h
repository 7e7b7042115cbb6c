/*
 * range - a remote file, read where it is asked for.
 *
 * The head comes in one request of 128 KiB, which is more than the header of nearly every shard;
 * what else is read in small pieces comes in growing ones that are kept, what is read in large
 * pieces comes as asked and is not.  Who opens with CKPT_PROVE gets the file whole before more
 * than 8 MiB of it are read: into the cache, in several requests at a time, its digest proved where
 * one is known, and what was read before compared with it.  A server that knows no ranges sends
 * the whole file at once.
 *
 * All answers must tell of one file: the same size, and without a digest known beforehand the same
 * ETag (or date, where there is no ETag that tells bytes): CKPT_EFORMAT "changed".
 */
#ifndef CKPT_LIBCKPT_REMOTE_RANGE_H
#define CKPT_LIBCKPT_REMOTE_RANGE_H

#include "libckpt/file.h"
#include "libckpt/remote/http.h"

/* A remote file; the files opened of it share what was read.  Any thread. */
struct range;

struct range_at {
    const char             *name;       /* for messages */
    const char             *url;
    const struct http_auth *auth;       /* or NULL; kept */
    uint64_t                size;       /* FIELD_NONE: not known yet */
    const char             *digest;     /* "sha256-<hex>", "sha1-<hex>" of a git blob, or "" */
};

int range_new(struct range **out, const struct range_at *at, struct ckpt_err *err);
void range_keep(struct range *r);
void range_drop(struct range *r);       /* NULL is accepted */
/* What is on this host already.  Takes file; called before the first read. */
void range_have(struct range *r, struct ckpt_file *file);
/* Learn the size, and read the head, where that was not done; with CKPT_PROVE a small file
 * comes whole. */
int range_head(struct range *r, unsigned flags, struct ckpt_err *err);
int range_file(struct ckpt_file **out, struct range *r, unsigned flags, struct ckpt_err *err);

#endif
