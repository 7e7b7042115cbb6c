/*
 * direct - large writes that go to the disk past the page cache.
 *
 * What is written once and synced gains nothing from lying in memory first: the copy into pages
 * costs more time than many disks, and the pages push out what is in use.  Only on ext4, where
 * it was measured and extents are never shared; elsewhere the kernel's own copy may be better.
 *
 * Relied on: a write of whole pages from memory that begins at a page, to a page's offset of an
 * open file with O_DIRECT (open(2)); pages beside it may be written the plain way.
 */
#ifndef CKPT_LIBCKPT_IO_DIRECT_H
#define CKPT_LIBCKPT_IO_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/commit.h"

#define DIRECT_PAGE  CKPT_OUT_PAGE
#define DIRECT_LEAST ((uint64_t)64 << 20)   /* bytes of a file that is worth it */

/* The file `name` in dir_fd, open as fd already, for direct writes; -1 when it takes none. */
int direct_open(int dir_fd, const char *name, int fd);
/* The whole pages of [at, at + n), from *head on; 0 when src's place in its page is another. */
size_t direct_pages(size_t *head, const void *src, uint64_t at, size_t n);

#endif
