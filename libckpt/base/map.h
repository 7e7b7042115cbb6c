/*
 * map - string -> index, with a seeded hash so that no file can choose its collisions.
 */
#ifndef CKPT_LIBCKPT_BASE_MAP_H
#define CKPT_LIBCKPT_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define CKPT_MAP_NONE SIZE_MAX

struct ckpt_map;

int ckpt_map_new(struct ckpt_map **out, size_t expected, struct ckpt_err *err);
void ckpt_map_free(struct ckpt_map *m);
/*
 * Add key -> value.  The key is kept by pointer and must outlive the map.
 * Returns 0; CKPT_EFORMAT (reason "duplicate") when the key is there already, value unchanged.
 */
int ckpt_map_add(struct ckpt_map *m, const char *key, size_t len, size_t value,
                 struct ckpt_err *err);
/* The value, or CKPT_MAP_NONE. */
size_t ckpt_map_get(const struct ckpt_map *m, const char *key, size_t len);
size_t ckpt_map_count(const struct ckpt_map *m);

#endif
