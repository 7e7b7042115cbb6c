/*
 * cache/part - a partly fetched large object, which survives an interruption.
 *
 * parts/<key> of the cache has the bytes, parts/<key>.sums the XXH3 of each piece that is there:
 * a piece that was torn by a crash is not taken for one.  Under the key's lock.
 */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_PART_H
#define CKPT_LIBCKPT_REMOTE_CACHE_PART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct cache_part;

/* The part of the object, or an empty one of that size. */
int cache_part_open(struct cache_part **out, const char *key, uint64_t size, struct ckpt_err *err);
int cache_part_fd(const struct cache_part *p);
/* Piece i, n bytes at `at`, into dst; false when it is not there whole.  Any thread. */
bool cache_part_has(struct cache_part *p, size_t i, void *dst, size_t n, uint64_t at);
/* Piece i was written.  A note that cannot be written costs one fetch more, later. */
void cache_part_note(struct cache_part *p, size_t i, const void *bytes, size_t n);
/* Whether some piece was there. */
bool cache_part_used(const struct cache_part *p);
/* Durable, and under its final name in objects/.  Takes p, on failure too. */
int cache_part_commit(struct cache_part *p, struct ckpt_err *err);
/* Keep it for the next try, or remove it.  Takes p; NULL accepted. */
void cache_part_close(struct cache_part *p, bool keep);
/* Remove parts that have not grown for a week. */
void cache_part_clean(void);

#endif
