/*
 * fragment - one stored piece of a tensor: the box it covers and where its bytes lie.
 *
 * A tensor of a sharded checkpoint is a list of fragments.  Formats fill the list; only this room
 * reads bytes by it.  Boxes count elements, row-major, outermost axis first; flat
 * partitions (ZeRO) use the rank-1 view of the tensor (struct ckpt_tensor's flat).  File
 * offsets count bytes.
 */
#ifndef CKPT_LIBCKPT_FRAGMENT_H
#define CKPT_LIBCKPT_FRAGMENT_H

#include "libckpt/api.h"
#include "libckpt/dtype.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"
#include "libckpt/mem.h"
#include "libckpt/shape.h"

CKPT_BEGIN_C

struct ckpt_box {
    int64_t start[CKPT_MAX_RANK];   /* first element covered, per axis */
    int64_t count[CKPT_MAX_RANK];   /* elements covered, per axis, each >= 1 */
};

struct ckpt_fragment {
    const struct ckpt_box *box;     /* in the coordinates of the tensor, in memory that lives as
                                       long as this; NULL, the usual case: the whole tensor */
    struct ckpt_file *file;         /* borrowed: stays open as long as its source */
    uint64_t          offset;       /* of the box's first element, in bytes */
    const int64_t    *stride;       /* elements between neighbours per axis, >= 0 each, as many
                                       as the rank; NULL: contiguous row-major over the box */
    bool              swapped;      /* elements lie big-endian */
    bool              negated;      /* values are negated when read: floats and complex */
    bool              conjugated;   /* values are conjugated when read: complex only */
};

/* Allocate a box in arena from rank axes of start (NULL: zeros) and count; NULL when out of
 * memory. */
struct ckpt_box *ckpt_fragment_box(struct ckpt_arena *arena, int rank, const int64_t *start,
                                   const int64_t *count);

/* A contiguous run of bytes of a file, stored as they are read. */
struct ckpt_extent {
    struct ckpt_file *file;
    uint64_t          offset;
};

/*
 * Prove that the fragments tile shape exactly once and lie inside their files (strides
 * included).  shape is in the coordinates of the boxes: [numel] when they are flat.  An empty
 * tensor has no fragments.
 * Returns 0; CKPT_EFORMAT with reason "overlap", "hole" (the element is named), "truncated" or
 * "bounds"; CKPT_ELIMIT beyond four million corners; CKPT_EUNSUPPORTED for sub-byte elements.
 * Cost: n_frag for a cut of one axis in order, otherwise n log n of n = n_frag * 2^(cut axes).
 */
int ckpt_fragment_check(const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                        const struct ckpt_fragment *frag, size_t n_frag, struct ckpt_err *err);

/*
 * Read elements [start, start + count) of the tensor in row-major order into dst, gathering from
 * as many fragments as they touch.  The fragments must have passed the check.  Their order is
 * free; if sorted by first element, the touched ones are found by bisection.  Scattered elements
 * are staged through a 64 KiB buffer, the only allocation.  Any thread.
 */
int ckpt_fragment_gather(void *dst, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                const struct ckpt_fragment *frag, size_t n_frag, int64_t start, int64_t count,
                struct ckpt_err *err);

/* True when elements [start, start + count) are stored as they are read, in one piece of one
 * file. */
bool ckpt_fragment_locate(struct ckpt_extent *out, const struct ckpt_shape *shape,
                          enum ckpt_dtype dtype, const struct ckpt_fragment *frag, size_t n_frag,
                          int64_t start, int64_t count);

CKPT_END_C

#endif
