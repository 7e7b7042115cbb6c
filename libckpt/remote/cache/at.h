/* cache/at - what the rooms of the cache share: where its files are. */
#ifndef CKPT_LIBCKPT_REMOTE_CACHE_AT_H
#define CKPT_LIBCKPT_REMOTE_CACHE_AT_H

#include <stdbool.h>
#include <stddef.h>

/* A path below the cache; false when there is none, or the path is too long. */
bool cache_path(char *out, size_t size, const char *folder, const char *name);
/* The folder is there and can be written; made where it is missing. */
bool cache_ready(const char *folder);

#endif
