/*
 * mapped - bytes of a file in place: as fast as memory, where read(2) would copy each.
 *
 * A file may be cut while it is mapped, and its disk may fail: the kernel then answers a load
 * with SIGBUS.  The handler here puts zeros in place of what is gone, and mapped_end tells: what
 * was made of the bytes in between is to be thrown away.  No jump leaves the code that loads.
 */
#ifndef CKPT_TOOLS_INSPECT_MAPPED_H
#define CKPT_TOOLS_INSPECT_MAPPED_H

#include "libckpt/fragment.h"

#define MAPPED_BYTES ((size_t)4 << 20)  /* a window that is worth its calls, and soon let go */

/*
 * Map n bytes of x's file, for this thread, one window at a time: true, and *out is good until
 * mapped_end.  False, and nothing is held, where that cannot be, and where the bytes are not in
 * memory yet: they are then read, which asks for more ahead and is no slower than the disk.
 */
bool mapped_begin(const void **out, const struct ckpt_extent *x, size_t n);
/* Let go.  CKPT_EIO when not all bytes were the file's: "truncated", or its disk failed. */
int mapped_end(struct ckpt_err *err);

#endif
