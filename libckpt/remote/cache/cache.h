/*
 * cache - what was fetched, kept on this host by its content: complete or absent.
 *
 * $CKPT_CACHE, or $XDG_CACHE_HOME/ckpt, or ~/.cache/ckpt holds
 *
 *   objects/<key>   a file's bytes; the key names them ("sha256-...", "sha1-..."), or an address
 *                   with what the server says tells its versions apart ("url-..."), or what
 *                   was made at some cost ("samples-...")
 *   proofs/<key>    the digest an object had, and what tells that it is the same (cache/proof.h)
 *   parts/<key>     pieces of a large object whose fetch was interrupted (cache/part.h)
 *   lists/<key>     what a place held when it was last asked, for when nothing may be asked
 *   lock            locked byte by byte, one a key: two who want the same fetch it once
 *
 * An object gets its name when it is whole and proved; who has it open keeps it whatever happens to
 * the name.  It is proved again when it is found; a damaged one is set aside, and told.  A cache
 * that others can write to is refused.  Beyond $CKPT_CACHE_LIMIT bytes (200G) those that were not
 * used for longest go.
 * CKPT_CACHE=none, or a place that cannot be written: files without a name, gone with the process.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_CACHE_H
#define CKPT_LIBCKPT_REMOTE_CACHE_CACHE_H

#include <jansson.h>

#include "libckpt/file.h"

#define CACHE_KEY 80            /* bytes of a key, with terminator */

/* Where the bytes of an object go.  Any thread, any order, each byte once. */
struct cache_sink;
int cache_put(struct cache_sink *s, const void *src, size_t n, uint64_t at, struct ckpt_err *err);

/*
 * The same for piece i of an object that is fetched in pieces.  An earlier try may have left it:
 * then it is in dst, and is not put.
 */
bool cache_has_piece(struct cache_sink *s, size_t i, void *dst, size_t n, uint64_t at);
int cache_put_piece(struct cache_sink *s, size_t i, const void *src, size_t n, uint64_t at,
                    struct ckpt_err *err);

/* Put all bytes, and prove them.  Called again where pieces of an earlier try were wrong. */
typedef int cache_fill_fn(void *ctx, struct cache_sink *s, struct ckpt_err *err);

/* CKPT_EREFUSED when somebody else can change what is in the cache. */
int cache_check(struct ckpt_err *err);
/* The object when it is there with that size (FIELD_NONE: any); *out is NULL when not.  name is
 * for messages. */
int cache_find(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
               struct ckpt_err *err);
/* The same, fetched by fill when it is not there.  key "": it is not kept. */
int cache_get(struct ckpt_file **out, const char *key, uint64_t size, const char *name,
              cache_fill_fn *fill, void *ctx, struct ckpt_err *err);

/* The object proved to be damaged: it is not found again. */
void cache_drop(const char *key);
/* Whether objects outlive the process. */
bool cache_keeps(void);

/* A list by key: NULL when there is none that reads.  A new reference. */
json_t *cache_list(const char *key);
/* Keep one; a place that cannot be written is no failure. */
void cache_keep_list(const char *key, const json_t *list);
/* The key of a text; "" when there is none to be had. */
void cache_key(char key[CACHE_KEY], const char *kind, const char *text);

/* prefix + variable, or home + fallback, of the environment; false when neither is set. */
bool cache_place(char *out, size_t size, const char *variable, const char *tail,
                 const char *fallback);

#endif
