/*
 * cache/part - a partly fetched large object, which survives an interruption.
 *
 * parts/<key> of the cache has the bytes, parts/<key>.sums the XXH3 of each piece that is there,
 * so that a piece torn by a crash is not used.  Guarded by the lock of the key.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_PART_H
#define CKPT_LIBCKPT_REMOTE_CACHE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/digest.h"
#include "libckpt/fail.h"

struct cache_part;

/* Takes bytes of a piece, in their order. */
typedef int cache_take_fn(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);

/* Open the part of the object, or create an empty one of that size. */
int cache_part_open(struct cache_part **out, const char *key, uint64_t size, struct ckpt_err *err);
int cache_part_fd(const struct cache_part *p);
/* Give piece i, n bytes at `at`, to take, a little at a time; false when it is absent, or turns out
 * to be damaged.  Any thread. */
bool cache_part_has(struct cache_part *p, size_t i, size_t n, uint64_t at, cache_take_fn *take,
                    void *ctx);
/* Record that piece i, with this XXH3, was written.  If that fails, it is fetched again next
 * time. */
void cache_part_note(struct cache_part *p, size_t i, const unsigned char sum[CKPT_XXH128_BYTES]);
/* Whether any piece was reused. */
bool cache_part_used(const struct cache_part *p);
/* Make it durable under its final name in objects/.  Takes p, on failure too. */
int cache_part_commit(struct cache_part *p, struct ckpt_err *err);
/* Keep it for the next try, or remove it.  Takes p; NULL accepted. */
void cache_part_close(struct cache_part *p, bool keep);
/* Remove parts that have not grown for a week. */
void cache_part_clean(void);

#endif
