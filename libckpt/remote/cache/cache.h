/*
 * cache - fetched files, stored on this host by their content: complete or absent.
 *
 * $CKPT_CACHE, or $XDG_CACHE_HOME/ckpt, or ~/.cache/ckpt holds
 *
 *   objects/<key>   a file's bytes; the key is their digest ("sha256-...", "sha1-..."), an address
 *                   and its version by the server ("url-..."), or the input of a costly
 *                   computation ("samples-...")
 *   proofs/<key>    the digest of an object, and the evidence that it is unchanged (cache/proof.h)
 *   parts/<key>     pieces of a large object whose fetch was interrupted (cache/part.h)
 *   lists/<key>     the files of a place when it was last asked, for use offline
 *   lock            locked byte by byte, one a key: two processes fetch the same object once
 *
 * An object gets its name when it is whole and verified; a process that has it open can read it
 * whatever happens to the name.  It is verified again when it is found; a damaged one is set
 * aside with a warning.  A cache that other users can write to is refused.  Beyond
 * $CKPT_CACHE_LIMIT bytes (200G) the least recently used objects are removed.  With
 * CKPT_CACHE=none, or a place that cannot be written, files have no name and are gone with the
 * process.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_CACHE_H
#define CKPT_LIBCKPT_REMOTE_CACHE_CACHE_H

#include <jansson.h>

#include "libckpt/commit.h"
#include "libckpt/file.h"
#include "libckpt/remote/cache/part.h"

#define CACHE_KEY 80            /* bytes of a key, with terminator */

/* Takes the bytes of an object.  Any thread, any order, each byte once. */
struct cache_sink;
int cache_put(struct cache_sink *s, const void *src, size_t n, uint64_t at, struct ckpt_err *err);

/*
 * Of an object that is fetched in pieces: what an earlier attempt stored of piece i is given to
 * take, a little at a time; false where there is none, or it turns out to be damaged.
 */
bool cache_has_piece(struct cache_sink *s, size_t i, size_t n, uint64_t at, cache_take_fn *take,
                     void *ctx);
/* Piece i, with this XXH3, was put. */
void cache_note_piece(struct cache_sink *s, size_t i, const unsigned char sum[CKPT_XXH128_BYTES]);

/* Put all bytes, and verify them.  Called again when pieces of an earlier attempt were wrong. */
typedef int cache_fill_fn(void *ctx, struct cache_sink *s, struct ckpt_err *err);

/* CKPT_EREFUSED when another user can change the cache. */
int cache_check(struct ckpt_err *err);
/* The object, if the cache has it with that size (FIELD_NONE: any), else NULL.  name is for
 * messages. */
int cache_find(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
               struct ckpt_err *err);
/* The same, but fetched by fill when absent.  An object with key "" is not cached. */
int cache_get(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
              cache_fill_fn *fill, void *ctx, struct ckpt_err *err);

/*
 * Move the object, whose descriptor is fd, out of the cache and into out, which is empty.  False,
 * with nothing done, where it has other names or users, or out is on another file system.
 */
bool cache_take(const char *key, int fd, struct ckpt_out *out);
/* The object is damaged: remove it from the cache. */
void cache_drop(const char *key);
/* Whether objects remain after the process ends. */
bool cache_keeps(void);

/* The list of a key, or NULL.  A new reference. */
json_t *cache_list(const char *key);
/* Store a list; failing to write it is not an error. */
void cache_keep_list(const char *key, const json_t *list);
/* The key for a text; "" when the digest cannot be computed. */
void cache_key(char key[CACHE_KEY], const char *kind, const char *text);

/* prefix + variable, or home + fallback, from the environment; false when neither is set. */
bool cache_place(char *out, size_t size, const char *variable, const char *tail,
                 const char *fallback);

#endif
