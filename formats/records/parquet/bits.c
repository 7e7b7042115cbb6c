/* parquet/bits - see parquet/bits.h. */
#include "formats/records/parquet/bits.h"

#include <string.h>

#include "formats/container/protobuf.h"
#include "libckpt/mem.h"

#define MAX_BLOCK (1u << 20)        /* values of a delta block */

/* Bits [at, at + width) of bytes, width at most 64. */
static uint64_t bits(const unsigned char *b, uint64_t at, unsigned width)
{
    unsigned shift = at & 7, got = 8 - shift;
    uint64_t v;

    if (width == 0)
        return 0;
    b += at >> 3;
    v = (uint64_t)*b++ >> shift;
    for (; got < width; got += 8)
        v |= (uint64_t)*b++ << got;
    return width < 64 ? v & (((uint64_t)1 << width) - 1) : v;
}

void pq_hybrid_init(struct pq_hybrid *h, const unsigned char *bytes, size_t len, unsigned width)
{
    *h = (struct pq_hybrid){.width = width};
    ckpt_cursor_init(&h->c, bytes ? (const void *)bytes : "", len);
}

static bool next_run(struct pq_hybrid *h)
{
    uint64_t head = 0, n = 0, bytes;

    while (n == 0 && !h->c.failed) {    /* some writers end with an empty run */
        head = protobuf_varint(&h->c);
        n = head >> 1;
    }
    h->value = 0;
    if (h->c.failed)
        return false;
    if (head & 1) {
        if (!ckpt_mul(&bytes, n, h->width))
            return false;
        /* The last group may be truncated to the values needed. */
        if (bytes > ckpt_cursor_left(&h->c)) {
            bytes = ckpt_cursor_left(&h->c);
            n = h->width ? bytes / h->width + (bytes % h->width != 0) : n;
        }
        h->left = n > UINT64_MAX / 8 ? UINT64_MAX : 8 * n;
        if (h->width && h->left > bytes * 8 / h->width)
            h->left = bytes * 8 / h->width;
        h->packed = ckpt_cursor_bytes(&h->c, (size_t)bytes);
        h->at = 0;
        return !h->c.failed && h->left > 0;
    }
    h->packed = NULL;
    for (unsigned i = 0; i < (h->width + 7) / 8; i++)
        h->value |= (uint64_t)ckpt_cursor_u8(&h->c) << 8 * i;
    h->left = n;
    return !h->c.failed && (h->value >> h->width) == 0;
}

bool pq_hybrid_next(struct pq_hybrid *h, uint32_t *out)
{
    if (h->left == 0 && !next_run(h))
        return false;
    h->left--;
    *out = (uint32_t)(h->packed ? bits(h->packed, h->at++ * h->width, h->width) : h->value);
    return true;
}

bool pq_delta_init(struct pq_delta *d, const unsigned char *bytes, size_t len, uint64_t most)
{
    uint64_t block, n_mini;

    *d = (struct pq_delta){0};
    ckpt_cursor_init(&d->c, bytes ? (const void *)bytes : "", len);
    block = protobuf_varint(&d->c);
    n_mini = protobuf_varint(&d->c);
    d->left = protobuf_varint(&d->c);
    d->value = (uint64_t)protobuf_zigzag(protobuf_varint(&d->c));
    if (d->c.failed || n_mini == 0 || block > MAX_BLOCK || block % n_mini != 0 ||
        block / n_mini % 8 != 0 || block == 0 || d->left > most)
        return false;
    d->per_mini = block / n_mini;
    d->n_mini = d->mini = (size_t)n_mini;
    return true;
}

/* Begin the next miniblock that has a value left. */
static bool next_mini(struct pq_delta *d)
{
    if (d->mini == d->n_mini) {
        d->least = (uint64_t)protobuf_zigzag(protobuf_varint(&d->c));
        d->widths = ckpt_cursor_bytes(&d->c, d->n_mini);
        d->mini = 0;
        if (d->c.failed)
            return false;
    }
    d->width = d->widths[d->mini++];
    d->in_mini = d->per_mini;
    d->at = 0;
    if (d->width > 64)
        return false;
    d->packed = ckpt_cursor_bytes(&d->c, (size_t)(d->per_mini / 8 * d->width));
    return !d->c.failed;
}

bool pq_delta_next(struct pq_delta *d, int64_t *out)
{
    if (d->left == 0)
        return false;
    *out = (int64_t)d->value;
    if (--d->left == 0)
        return true;
    if (d->in_mini == 0 && !next_mini(d))
        return false;
    d->in_mini--;
    d->value += d->least + bits(d->packed, d->at++ * d->width, d->width);
    return true;
}

bool pq_delta_end(struct pq_delta *d)
{
    /* The next value is known already; the others are in miniblocks. */
    while (d->left > 1) {
        if (d->in_mini == 0 && !next_mini(d))
            return false;
        if (d->left - 1 <= d->in_mini)
            d->left = 1;
        else
            d->left -= d->in_mini;
        d->in_mini = 0;
    }
    d->left = 0;
    return !d->c.failed;
}
