/*
 * parquet/bits - integers as parquet packs them, one at a time: the hybrid of runs and bit
 * packing, and the binary packing of differences.
 *
 * Source: apache/parquet-format, Encodings.md.
 *
 * Hybrid: a varint h, then for an even h one value of ceil(width / 8) bytes that stands h / 2
 * times, for an odd h so many groups of eight values, width bits each, least significant first.
 *
 * Delta: varints block size, miniblocks in a block, number of values, and the first value as a
 * zigzag varint.  Then blocks: the least difference as a zigzag varint, a width for each
 * miniblock as a byte, and the miniblocks' differences above the least, bit-packed.  Sums wrap.
 * Miniblocks after the last value have a width and no bytes.
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_BITS_H
#define CKPT_FORMATS_RECORDS_PARQUET_BITS_H

#include "libckpt/base/buf.h"

struct pq_hybrid {
    struct ckpt_cursor   c;
    const unsigned char *packed;    /* of the group run that is read; NULL: a repeated value */
    uint64_t             left;      /* values of this run */
    uint64_t             at;        /* value in packed */
    uint64_t             value;
    unsigned             width;     /* bits, at most 32 */
};

void pq_hybrid_init(struct pq_hybrid *h, const unsigned char *bytes, size_t len, unsigned width);
/* False where the bytes end or are none. */
bool pq_hybrid_next(struct pq_hybrid *h, uint32_t *out);

struct pq_delta {
    struct ckpt_cursor   c;
    uint64_t             left;          /* values */
    uint64_t             value;         /* the next one */
    uint64_t             per_mini;      /* values */
    size_t               n_mini, mini;  /* miniblocks of a block, and how many are begun */
    const unsigned char *widths;
    uint64_t             least;
    const unsigned char *packed;
    uint64_t             at, in_mini;   /* value in the miniblock, and values it has left */
    unsigned             width;
};

/* False when the header is none, or has more than most values. */
bool pq_delta_init(struct pq_delta *d, const unsigned char *bytes, size_t len, uint64_t most);
bool pq_delta_next(struct pq_delta *d, int64_t *out);
/* Step over all values that are left: the bytes after them remain in d->c. */
bool pq_delta_end(struct pq_delta *d);

#endif
