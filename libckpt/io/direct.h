/*
 * direct - large writes that go to the disk past the page cache.
 *
 * Data that is written once and synced gains nothing from the page cache: the copy into pages
 * takes longer than many disks do, and the pages displace others that are in use.  Used on ext4
 * only, where it was measured and extents are never shared; elsewhere the kernel's own copy may
 * be faster.
 *
 * Assumed: O_DIRECT (open(2)) takes writes of whole pages from page-aligned memory to
 * page-aligned offsets, while other pages of the file may be written the plain way.
 */
#ifndef CKPT_LIBCKPT_IO_DIRECT_H
#define CKPT_LIBCKPT_IO_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/commit.h"

#define DIRECT_PAGE  CKPT_OUT_PAGE
#define DIRECT_LEAST ((uint64_t)64 << 20)   /* smallest file, in bytes, for which this pays */

/* Open `name` in dir_fd, open already as fd, for direct writes; -1 when the file cannot. */
int direct_open(int dir_fd, const char *name, int fd);
/* Bytes of whole pages in [at, at + n), beginning at *head; 0 when src is not aligned like `at`. */
size_t direct_pages(size_t *head, const void *src, uint64_t at, size_t n);

#endif
