/*
 * bnb/codes - bitsandbytes' dynamic codes of 8 bits: the nearest entry of a table of 256.
 *
 * Tables are dense near zero: seven decades, each with twice the entries of the one below.  In a
 * signed table entry 127 is 0, entries 128 + i and 126 - i differ in sign only, and 255 is 1,
 * which has no negative; in an unsigned table entry 0 is 0.  The nearest entry is found without a
 * search: the exponent and seven bits of the mantissa choose a cell, and entries are so far apart
 * that a cell contains at most one border between two of them.  A plain struct, so that it can be
 * copied to a GPU.  Source: bitsandbytes 0.50.2, functional.py (create_dynamic_map),
 * csrc/kernels.cu (kOptimizerStatic8bit2StateBlockwise).
 */
#ifndef CKPT_FORMATS_BNB_CODES_H
#define CKPT_FORMATS_BNB_CODES_H

#include <stdbool.h>
#include <stdint.h>

#define BNB_BLOCK 256                   /* elements that share a scale */

/* Cells: from 2^-23, below half of the smallest entry, to 1 itself. */
enum { BNB_CELL_BITS = 7, BNB_CELL_BASE = (127 - 23) << BNB_CELL_BITS,
       BNB_CELLS = (23 << BNB_CELL_BITS) + 1 };

struct bnb_codec {
    float   map[256];                   /* ascending */
    float   border[256];                /* border[i], between magnitudes i and i + 1: the
                                           smallest value that is rounded up */
    uint8_t cell[(BNB_CELLS + 3) / 4 * 4];      /* index of the border that may lie in the cell */
    int32_t zero;                       /* the code of 0 */
};

/* Fill the signed or unsigned table, in ascending order. */
void bnb_map(float map[256], bool with_sign);
void bnb_codec_init(struct bnb_codec *c, bool with_sign);
/*
 * n elements as codes, and a scale for each block: the nearest entry of map, the upper one of two
 * alike, never of the other sign.  A block of zeros has the code of 0 and the scale 0.  Numbers that
 * codes stood for (map[code] * scale) are packed without a loss: opened again they are the same.
 */
void bnb_pack(uint8_t *code, float *scale, const float *src, int64_t n, const struct bnb_codec *c);

#ifdef __CUDACC__
#define BNB_BOTH __host__ __device__ __forceinline__
#else
#define BNB_BOTH inline __attribute__((always_inline))
#endif

/* The code of x, from -1 (unsigned: 0) to 1; larger values count as 1. */
static BNB_BOTH uint8_t bnb_code(const struct bnb_codec *c, float x)
{
    union { float f; uint32_t bits; } at = {x};
    int32_t cell, size;
    uint32_t sign = at.bits >> 31;

    at.bits &= 0x7fffffff;
    cell = (int32_t)(at.bits >> (23 - BNB_CELL_BITS)) - BNB_CELL_BASE;
    cell = cell < 0 ? 0 : cell < BNB_CELLS ? cell : BNB_CELLS - 1;
    size = c->cell[cell];
    if (!sign) {
        size += at.f >= c->border[size];
        return (uint8_t)(c->zero + size);
    }
    size += at.f > c->border[size];     /* in a tie the upper one */
    size += size == 0 && at.f > 0;      /* zero has no negative */
    size -= size > c->zero;             /* -1 is none */
    return (uint8_t)(c->zero - size);
}

#endif
