/*
 * attention/bwd_two_pass - shared by the two kernels of attention/bwd_two_pass.cu: loading of
 * tiles, terms and masks of a tile of scores, dS.
 *
 * A tile is 64 rows.  Whole tiles are loaded by TMA (tma.cuh), the last of a document by all
 * threads, with zeros past its end.
 */
#ifndef CKPT_TRAINER_CUDA_ATTENTION_BWD_TWO_PASS_H
#define CKPT_TRAINER_CUDA_ATTENTION_BWD_TWO_PASS_H

#include "trainer/cuda/attention/dropout.cuh"
#include "trainer/cuda/hopper/tma.cuh"

#include <limits.h>

namespace {

enum { TILE = 64, GROUP = 128 };

/* Tensor maps of the inputs; a parameter of the kernels. */
struct bwd_maps {
    CUtensorMap q, dout, k, v;
    bool        valid;                  /* false: strides or alignment allow none */
    bool        wide_out;               /* rows of gradients allow 16-byte stores */
};

/* Rows of two heads that are loaded together: queries and their gradients of out, or keys and
 * values. Values that only the end of a document needs are read from the kernel's parameters. */
template <typename T> struct bwd_pair {
    const CUtensorMap *map_x, *map_y;
    const T           *x, *y;           /* row 0 of head 0 */
    int64_t            stride_x, stride_y, head_x, head_y;
    int                head;
    bool               bounded;         /* the maps end at the last row of all */
};

/* -- tiles ------------------------------------------------------------------------------------- */

template <typename T>
__device__ __forceinline__ struct bwd_pair<T> bwd_queries_of(const struct attn &a,
                                                             const struct bwd_maps &maps, int h)
{
    return {&maps.q,      &maps.dout, (const T *)a.q, (const T *)a.dout, a.row_stride,
            (int64_t)a.n_head * a.dim, a.q_head, a.dim, h, true};
}

template <typename T>
__device__ __forceinline__ struct bwd_pair<T> bwd_keys_of(const struct attn &a,
                                                          const struct bwd_maps &maps, int g)
{
    return {&maps.k,     &maps.v,   (const T *)a.k, (const T *)a.v, a.kv_stride,
            a.kv_stride, a.kv_head, a.kv_head,      g,              !a.key_start};
}

/* Whether TMA loads a tile with `left` rows of the document. */
template <typename T>
__device__ __forceinline__ bool bwd_by_tma(const struct bwd_maps &maps,
                                           const struct bwd_pair<T> &of, int left)
{
    return maps.valid && (left >= TILE || of.bounded);
}

/* Load two tiles from `row` on; completes one phase of the mbarrier. */
template <int D, typename T>
__device__ __forceinline__ void bwd_load_pair(const struct bwd_maps &maps,
                                              const struct bwd_pair<T> &of, T *x, T *y, int row,
                                              int left, uint64_t *mbar)
{
    if (threadIdx.x == 0) {
        if (bwd_by_tma(maps, of, left)) {
            mbarrier_expect_tx(mbar, 2 * TILE * D * (int)sizeof(T));
            tma_load_tile<D, TILE>(x, of.map_x, of.head, row, mbar);
            tma_load_tile<D, TILE>(y, of.map_y, of.head, row, mbar);
        } else {
            mbarrier_arrive(mbar);
        }
    }
}

/* Complete the last tile of a document, or load any tile where there are no maps. */
template <int D, typename T>
__device__ __forceinline__ void bwd_finish_pair(const struct attn &a,
                                                const struct bwd_maps &maps,
                                                const struct bwd_pair<T> &of, T *x, T *y,
                                                int row, int left)
{
    int t = (int)threadIdx.x;

    if (bwd_by_tma(maps, of, left)) {
        tma_clear_rows<D, TILE, GROUP>(x, left, t);
        tma_clear_rows<D, TILE, GROUP>(y, left, t);
    } else {
        tma_copy_part<D, TILE, GROUP>(x, of.x + of.head * of.head_x + row * of.stride_x,
                                     of.stride_x, left, a.dim, a.vec,
                                      t);
        tma_copy_part<D, TILE, GROUP>(y, of.y + of.head * of.head_y + row * of.stride_y,
                                     of.stride_y, left, a.dim, a.vec,
                                      t);
        cp_async_commit();
        cp_async_wait<0>();
    }
    wgmma_proxy_fence();
    __syncthreads();
}

/* Wait until two tiles may be multiplied by the whole block. */
template <int D, typename T, typename... A>
__device__ __forceinline__ void bwd_wait_pair(const struct attn &a, const struct bwd_maps &maps,
                                              const struct bwd_pair<T> &of, T *x, T *y, int row,
                                              int left, uint64_t *mbar, int phase, A &...acc)
{
    mbarrier_wait(mbar, phase);
    if (left < TILE || !maps.valid) {
        wgmma_wait<true, 0>(acc...);
        bwd_finish_pair<D>(a, maps, of, x, y, row, left);
    }
}

/* -- scores, P and dS -------------------------------------------------------------------------- */

/* Masked elements of a tile get score -inf (or what scaling makes of it): rows lane / 4 and 8
 * below see columns [from, to), counted from the lane's first. */
__device__ __forceinline__ void bwd_mask(const struct attn &a, float (&s)[1][8][4],
                                         const int (&from)[2], const int (&to)[2])
{
    float never = a.scale2 < 0 ? INFINITY : -INFINITY;

#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            int col = 8 * n + e % 2;
            bool seen = (col >= from[e / 2]) & (col < to[e / 2]);

            s[0][n][e] = seen ? s[0][n][e] : never;
        }
}

/* Rows are queries: row[r] is the sum of the terms and -lse at the lane's first column, line the
 * terms by distance from there on. */
template <int MODE, bool DIFFER>
__device__ __forceinline__ void bwd_p_of_queries(const struct attn &a, float (&s)[1][8][4],
                                                 const float (&row)[2], float slope,
                                                 const float *line)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = row[e / 2];

            if (attn_has_slopes(MODE))
                x = fmaf(slope, (float)(8 * n + e % 2), x);
            if (DIFFER)
                x += line[8 * n + e % 2 - e / 2 * 8];
            s[0][n][e] = attn_exp2(fmaf(s[0][n][e], a.scale2, x));
        }
}

/* Rows are keys: row[r] is the sum of the terms at the lane's first column, without lse; with a
 * table alone both rows have the same. */
template <int MODE, bool DIFFER>
__device__ __forceinline__ void bwd_p_of_keys(const struct attn &a, float (&s)[1][8][4],
                                              const float *lse, const float (&row)[2],
                                              float slope, const float *line)
{
    int col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        float2 l = *(const float2 *)(lse + 8 * n + col);

        if (attn_has_slopes(MODE)) {
            l.x = fmaf(slope, (float)(8 * n), l.x);
            l.y = fmaf(slope, (float)(8 * n + 1), l.y);
        } else if (attn_has_table(MODE) && !DIFFER) {
            l.x -= row[0];
            l.y -= row[0];
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float x = -(e % 2 ? l.y : l.x);

            if (attn_has_slopes(MODE))
                x += row[e / 2];
            if (DIFFER)
                x += line[e / 2 * 8 - 8 * n - e % 2];
            s[0][n][e] = attn_exp2(fmaf(s[0][n][e], a.scale2, x));
        }
    }
}

/* dS from dP, with dropout applied. */
template <int MODE>
__device__ __forceinline__ float bwd_ds(const struct attn &a, float dp, float p, float delta,
                                        uint64_t kept, int bit)
{
    if (MODE == ATTN_ANY && a.drop.on)
        dp = kept >> bit & 1 ? dp * a.drop.scale : 0.0f;
    return p * (dp - delta);
}

template <int MODE>
__device__ __forceinline__ void bwd_ds_of_queries(const struct attn &a, float (&dp)[1][8][4],
                                                  const float (&p)[1][8][4],
                                                  const float (&delta)[2], uint64_t kept)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            dp[0][n][e] =
                bwd_ds<MODE>(a, dp[0][n][e], p[0][n][e], delta[e / 2], kept, 4 * n + e);
}

template <int MODE>
__device__ __forceinline__ void bwd_ds_of_keys(const struct attn &a, float (&dp)[1][8][4],
                                               const float (&p)[1][8][4], const float *delta,
                                               uint64_t kept)
{
    int col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < 8; n++) {
        float2 d = *(const float2 *)(delta + 8 * n + col);

#pragma unroll
        for (int e = 0; e < 4; e++)
            dp[0][n][e] =
                bwd_ds<MODE>(a, dp[0][n][e], p[0][n][e], e % 2 ? d.y : d.x, kept, 4 * n + e);
    }
}

/* P with dropout (mask `kept`) as the first factor of dv. */
template <int MODE, typename T>
__device__ __forceinline__ void bwd_p_factor(const struct attn &a, uint32_t (&f)[1][4][4],
                                             const float (&p)[1][8][4], uint64_t kept)
{
    if (MODE == ATTN_ANY && a.drop.on) {
        float x[1][8][4];

#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                x[0][n][e] = kept >> (4 * n + e) & 1 ? p[0][n][e] * a.drop.scale : 0.0f;
        attn_as_factor<T>(f, x);
    } else {
        attn_as_factor<T>(f, p);
    }
}

/* -- rows, before and after -------------------------------------------------------------------- */

/* D = dout . out of a row by eight threads, of which this is `lane`. */
template <typename T, int D>
__device__ __forceinline__ float bwd_row_scalar(const struct attn &a, const T *x, const T *y,
                                                int lane)
{
    float sum = 0;

#pragma unroll 1
    for (int c = lane; c < a.dim; c += 8)
        sum += cuda_to_f32(x[c]) * cuda_to_f32(y[c]);
    return sum;
}

/* D = dout . out for the rows of a tile, for this block and for those of keys. All loads are
 * issued before the first is used. */
template <typename T, int D>
__device__ __forceinline__ void bwd_deltas(const struct attn &a, float *delta, int64_t i0,
                                           int h, int rows)
{
    const int LANES = 8, STEP = GROUP / LANES, TIMES = TILE / STEP, PACKS = (D + 63) / 64;
    int lane = (int)threadIdx.x % LANES, r0 = (int)threadIdx.x / LANES;
    const int64_t stride = (int64_t)a.n_head * a.dim;
    const T *x = (const T *)a.out + (i0 + r0) * stride + h * a.dim;
    const T *y = (const T *)a.dout + (i0 + r0) * stride + h * a.dim;
    cuda_pack<T, 8> px[TIMES][PACKS] = {}, py[TIMES][PACKS] = {};

#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        bool there = r0 + i * STEP < rows;

#pragma unroll
        for (int c = 0; c < PACKS; c++) {
            int col = (c * LANES + lane) * 8;

            if (there && col < a.dim && a.vec) {
                px[i][c] = *(const cuda_pack<T, 8> *)(x + i * STEP * stride + col);
                py[i][c] = *(const cuda_pack<T, 8> *)(y + i * STEP * stride + col);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
        int r = r0 + i * STEP;
        float sum = 0;

#pragma unroll
        for (int c = 0; c < PACKS; c++)
#pragma unroll
            for (int e = 0; e < 8; e++)
                sum += cuda_to_f32(px[i][c].at[e]) * cuda_to_f32(py[i][c].at[e]);
        if (!a.vec && r < rows)
            sum = bwd_row_scalar<T, D>(a, x + i * STEP * stride, y + i * STEP * stride, lane);
        sum = cuda_warp_sum<LANES>(sum);
        if (lane == 0) {
            delta[r] = sum;
            if (r < rows)
                a.delta[h * a.n + i0 + r] = sum;
        }
    }
}

/* Store a warp's 16 rows of sums, from `row` on, to rows [0, rows) of a matrix whose row 0 is at
 * `to`, through its rows of a tile that no product reads any more. */
template <int D, typename T>
__device__ __forceinline__ void bwd_store_rows(const struct attn &a,
                                               const struct bwd_maps &maps, T *to,
                                               int64_t stride, T *tile, int row, int rows,
                                               const float (&x)[D / 8][4], float by)
{
    if (maps.wide_out)
        wgmma_store_fragments<D, TILE>(to, stride, tile, row, rows, a.dim, x, by);
    else
        attn_store_rows(to, stride, row, rows, a.dim, a.pairs, x, by, by);
}

} /* namespace */

#endif
