/* range_at - shared by range.c and fetch.c: bytes of a remote file, and all of it. */
#ifndef CKPT_LIBCKPT_REMOTE_RANGE_AT_H
#define CKPT_LIBCKPT_REMOTE_RANGE_AT_H

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/err.h"
#include "libckpt/io/file_at.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/range.h"

#define RANGE_EXTENTS 64

/* Bytes [at, at + n) that were fetched. */
struct extent {
    uint64_t       at;
    size_t         n;
    unsigned char *bytes;
};

struct range {
    atomic_size_t           refs;
    struct http            *http;
    char                   *name;
    char                    digest[CACHE_KEY];
    void (*got)(const void *tree, const void *file, struct ckpt_file *whole);
    int (*renew)(const void *tree, const void *file, char url[HTTP_URL],
                 const struct http_auth **auth, struct ckpt_err *err);
    const void             *tree, *file;

    pthread_mutex_t         lock;       /* guards all below; held while small pieces are fetched */
    uint64_t                size;       /* FIELD_NONE until the first answer */
    char                    tag[FIELD_BYTES];       /* identifies the version, or "" */
    bool                    met;        /* a response has come: tag is set */
    bool                    no_ranges;
    struct extent           extent[RANGE_EXTENTS];  /* oldest first; [0] is the head */
    size_t                  n_extent, kept_bytes, ahead;
    struct ckpt_file       *whole;      /* the complete file: set once, then never changed */
    char                    key[CACHE_KEY];     /* of the cache's object that it is */
    bool                    to_take;    /* it was fetched to be taken away */
    struct ckpt_err         trouble;    /* why the head cannot be had; it is requested once */

    pthread_mutex_t         going;      /* held while the whole file is fetched */
    pthread_mutex_t         way;        /* guards the fields below, and tag, met */
    char                   *url;
    const struct http_auth *auth;
    unsigned                renewed;    /* how often they were asked for again */
    char                    direct[HTTP_URL];       /* where the last redirect led; a secret */
};

/* Make a request for the file: where its address has expired, from the one that led there, or
 * from a new one.  Fills in the address and the authentication of q. */
int range_ask(struct range *r, struct http_request *q, struct http_answer *a,
              struct ckpt_err *err);
/* Fetch bytes [at, at + n) into dst, in one request; *got is less than n when the file ends
 * earlier, possible only while its size is unknown.  CKPT_EUNSUPPORTED "ranges" when the server
 * sends another range. */
int range_get(struct range *r, void *dst, uint64_t at, size_t n, size_t *got,
              struct ckpt_err *err);
/* The same, of exactly n bytes, given to put as they come; begin is called before the first of
 * each try. */
struct range_stream {
    int (*begin)(void *ctx, struct ckpt_err *err);
    int (*put)(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);
    void *ctx;
};
int range_get_stream(struct range *r, const struct range_stream *to, uint64_t at, size_t n,
                     struct ckpt_err *err);
/* Check that a response is about the same version of the file as those before. */
int range_same(struct range *r, const struct http_answer *a, uint64_t total,
               struct ckpt_err *err);
/* Why a file is fetched whole; all 0: to be read.  The rest is as of file_fetch. */
struct range_want {
    bool          take;
    bool         *came;
    file_tick_fn *tick;
    void         *ctx;
};

/* Fetch the whole file, verified; key and to_take of r are filled in. */
int range_fetch_whole(struct ckpt_file **out, struct range *r, const struct range_want *want,
                      struct ckpt_err *err);
/* Verify that n bytes have the digest of r, where it is known. */
int range_fetch_prove(const struct range *r, const void *bytes, size_t n, struct ckpt_err *err);

#endif
