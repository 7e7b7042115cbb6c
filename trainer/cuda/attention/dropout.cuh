/*
 * attention/dropout - dropout of probabilities: which elements of a tile are kept, from the
 * random words of their counters.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_DROPOUT_H
#define CKPT_TRAINER_CUDA_ATTENTION_DROPOUT_H

#include "trainer/cuda/attention/attention.cuh"

/* A document's sample. Without rows it has none, and there is nothing to drop. */
__device__ __forceinline__ uint32_t dropout_sample(const struct attn &a, const struct place &p)
{
    return a.drop.on && p.len > 0 ? (uint32_t)(a.drop.rows[p.first] >> 32) : 0;
}

/* The high half of the counters of a sample and a head. */
__device__ __forceinline__ uint64_t dropout_of(const struct attn &a, uint32_t sample, int h)
{
    return (uint64_t)sample << 32 | (a.drop.stream + (uint32_t)h * OP_DROP_STREAMS);
}

/* Which of the four columns from 4 * col4 on are kept in a row of the document, as bits. */
__device__ __forceinline__ unsigned dropout_bits(const struct attn &a, uint64_t of, int row,
                                                 int col4)
{
    uint32_t w[4];
    unsigned bits = 0;

    philox(w, a.drop.seed, of, (uint64_t)row << 32 | (uint32_t)col4);
#pragma unroll
    for (int i = 0; i < 4; i++)
        bits |= (unsigned)(w[i] >= a.drop.least) << i;
    return a.drop.all ? 0 : bits;
}

/*
 * Which of a lane's elements of a tile of P are kept: bit 4 (m NT + n) + e. of: dropout_of; row
 * is that of the lane's first element in the document, j the tile's first key.  Two neighbouring
 * lanes hold four columns of rows g and g + 8: each computes the words of one row. (A single loop,
 * because the words take much code.)
 */
template <int MR, int NT>
__device__ __forceinline__ uint64_t dropout_tile(const struct attn &a, uint64_t of, int row, int j)
{
    int odd = (int)threadIdx.x % 2, quad = (int)threadIdx.x % 4 / 2;
    uint64_t all = 0;

#pragma unroll 1
    for (int t = 0; t < MR * NT; t++) {
        unsigned bits =
            dropout_bits(a, of, row + t / NT * 16 + 8 * odd, (j + t % NT * 8) / 4 + quad)
            << (4 * odd);

        bits |= __shfl_xor_sync(0xffffffffu, bits, 1);
        bits >>= 2 * odd;
        all |= (uint64_t)((bits & 3) | (bits >> 2 & 12)) << (4 * t);
    }
    return all;
}

/*
 * The same where rows are keys and columns queries: row is the document's row of the lane's first
 * query, j its first key.  Four lanes that hold keys 4x ... 4x + 3 need one word each of
 * the same four counters (two queries, keys 8 apart); each computes one counter, and the bits
 * are exchanged.
 */
template <int MR, int NT>
__device__ __forceinline__ uint64_t dropout_tile_t(const struct attn &a, uint64_t of, int row,
                                                   int j)
{
    int third = (int)threadIdx.x / 4 % 4;
    uint64_t all = 0;

#pragma unroll 1
    for (int t = 0; t < MR * NT; t++) {
        unsigned bits = dropout_bits(a, of, row + t % NT * 8 + third % 2,
                                     (j + t / NT * 16 + third / 2 * 8) / 4) << (4 * third);

        bits |= __shfl_xor_sync(0xffffffffu, bits, 4);
        bits |= __shfl_xor_sync(0xffffffffu, bits, 8);
        bits >>= third;
        all |= (uint64_t)((bits & 1) | (bits >> 3 & 2) | (bits >> 6 & 4) | (bits >> 9 & 8))
               << (4 * t);
    }
    return all;
}

#endif
