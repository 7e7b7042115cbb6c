/*
 * attention/fwd - shared by the forward kernels: terms and masks of a tile of scores, and the
 * online softmax.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_FWD_H
#define CKPT_TRAINER_CUDA_ATTENTION_FWD_H

#include "trainer/cuda/attention/dropout.cuh"
#include "trainer/cuda/hopper/tma.cuh"

#include <limits.h>

/* Tensor maps of queries, keys and values. */
struct fwd_maps {
    CUtensorMap q, k, v;
};

/* False: strides do not allow maps. The number of rows of keys is not always known, but only
 * whole tiles are loaded through maps. */
template <int D>
static inline bool fwd_maps_of(struct fwd_maps *m, const struct attn &a, int queries,
                               int keys)
{
    int64_t rows = a.key_start || a.past ? INT_MAX : a.n, heads = a.past ? 1 : a.n_kv;
    int64_t head = a.past ? a.dim : a.kv_head;

    return a.vec &&
           tma_map_of<D>(&m->q, a.q, a.n, a.row_stride, a.n_head, a.q_head, a.dim, queries) &&
           tma_map_of<D>(&m->k, a.k, rows, a.kv_stride, heads, head, a.dim, keys) &&
           tma_map_of<D>(&m->v, a.v, rows, a.kv_stride, heads, head, a.dim, keys);
}

/* A warp's softmax state for its rows: lane / 4 and 8 below, for each part. */
template <int MR> struct softmax {
    float max[MR][2], sum[MR][2];
};

/* Scores of a tile in base 2 with all terms: from `line` where they differ, else `beyond`. */
template <int MODE, bool DIFFER, int MR, int NT>
__device__ __forceinline__ void fwd_add_terms(const struct attn &a, float (&s)[MR][NT][4],
                                              int j, int pos, float slope, float beyond,
                                              const float *line)
{
    float base = attn_has_slopes(MODE) ? fmaf(slope, (float)(j - pos), beyond) : beyond;

    line += a.span + j - pos;
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int step = 8 * n + e % 2 - 16 * m - e / 2 * 8;
                float x = attn_has_slopes(MODE) ? fmaf(slope, (float)step, base) : base;

                if (DIFFER)
                    x = attn_has_slopes(MODE) ? x + line[step] : line[step];
                s[m][n][e] = fmaf(s[m][n][e], a.scale2, x);
            }
}

/* Mask the columns that rows do not see: past the last one where AFTER, else before the first. */
template <bool AFTER, int MR, int NT>
__device__ __forceinline__ void fwd_mask_side(const struct attn &a, float (&s)[MR][NT][4],
                                              int j, int pos, int keys)
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int i = pos + 16 * m + 8 * r;
            int edge = (AFTER ? attn_sees_to(a, i, keys) : attn_sees_from(a, i)) - j;

#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 2; c++)
                    if (AFTER == (8 * n + c >= edge))
                        s[m][n][2 * r + c] = -INFINITY;
        }
}

/* Both masks, for rows of which the first sees keys before none_before, the last those from
 * all_after on. */
template <int BN, int MR, int NT>
__device__ __forceinline__ void fwd_mask(const struct attn &a, float (&s)[MR][NT][4], int j,
                                         int pos, int keys, int none_before, int all_after)
{
    int col = j + (int)threadIdx.x % 4 * 2;

    if (j + BN > none_before)
        fwd_mask_side<true>(a, s, col, pos, keys);
    if (j < all_after)
        fwd_mask_side<false>(a, s, col, pos, keys);
}

/* Turn scores into probabilities against the largest so far; earlier sums must be multiplied by
 * fix. */
template <int MODE, int MR, int NT>
__device__ __forceinline__ void fwd_softmax_step(float (&s)[MR][NT][4], struct softmax<MR> &w,
                                                 float (&fixes)[MR][2], float scale2)
{
    const float by = MODE == ATTN_PLAIN ? scale2 : 1.0f;

#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float max = w.max[m][r], sum = 0, low, fix;

#pragma unroll
            for (int n = 0; n < NT; n++)
                max = fmaxf(max, fmaxf(s[m][n][2 * r], s[m][n][2 * r + 1]));
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 1));
            max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, 2));
            low = max == -INFINITY ? 0.0f : max * by;
            fix = attn_exp2(w.max[m][r] * by - low);
            w.max[m][r] = max;
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float p = attn_exp2(fmaf(s[m][n][2 * r + c], by, -low));

                    s[m][n][2 * r + c] = p;
                    sum += p;
                }
            w.sum[m][r] = w.sum[m][r] * fix + sum;
            fixes[m][r] = fix;
        }
}

template <int MR, int OT>
__device__ __forceinline__ void fwd_rescale(float (&out)[MR][OT][4], const float (&fix)[MR][2])
{
#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < OT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                out[m][n][e] *= fix[m][e / 2];
}

/* Apply dropout to the probabilities of a tile; of, row and j as in dropout_tile. */
template <int MR, int NT>
__device__ __forceinline__ void fwd_drop_tile(const struct attn &a, float (&s)[MR][NT][4],
                                              uint64_t of, int row, int j)
{
    uint64_t bits = dropout_tile<MR, NT>(a, of, row, j);

#pragma unroll
    for (int m = 0; m < MR; m++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[m][n][e] = bits >> (4 * (m * NT + n) + e) & 1 ? s[m][n][e] * a.drop.scale : 0.0f;
}

#endif
