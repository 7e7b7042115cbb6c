/*
 * mapped - access bytes of a file by mmap: at memory speed, where read(2) would copy each byte.
 *
 * A file may be truncated while it is mapped, and its disk may fail: the kernel then answers a
 * load with SIGBUS.  The handler here maps zeros in place of the lost page, and mapped_end
 * reports it: results computed in between must be thrown away.  The handler never jumps out of
 * the code that loads.
 */
#ifndef CKPT_TOOLS_INSPECT_MAPPED_H
#define CKPT_TOOLS_INSPECT_MAPPED_H

#include "libckpt/fragment.h"

#define MAPPED_BYTES ((size_t)4 << 20)  /* a window large enough to be worth its calls, small
                                           enough to be released soon */

/*
 * Map n bytes of x's file, for this thread, one window at a time.  True: *out is valid until
 * mapped_end.  False, with nothing mapped: mapping is impossible, or the bytes are not in the
 * page cache yet; then the caller reads them, which makes the kernel read ahead and is no slower
 * than the disk.
 */
bool mapped_begin(const void **out, const struct ckpt_extent *x, size_t n);
/* Unmap.  CKPT_EIO when not all bytes were the file's: "truncated", or its disk failed. */
int mapped_end(struct ckpt_err *err);

#endif
