/* cache/at - the place of the cache's files, for all parts of the cache. */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_AT_H
#define CKPT_LIBCKPT_REMOTE_CACHE_AT_H

#include <stdbool.h>
#include <stddef.h>

/* A path below the cache; false when there is none, or the path is too long. */
bool cache_path(char *out, size_t size, const char *folder, const char *name);
/* Create the folder where it is missing; whether it can be written. */
bool cache_ready(const char *folder);

#endif
