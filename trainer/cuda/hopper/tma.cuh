/*
 * tma - load tiles of 16-bit rows of heads to shared memory by TMA.
 *
 * A tensor map says where rows of heads lie in memory, and how a tile of a head is laid out in
 * shared memory: in panels, as in wgmma.cuh.  One thread issues the load; the tile has arrived
 * when its bytes complete a phase of an mbarrier (hopper/mbarrier.cuh).  Columns from dim on, and
 * rows from `rows` on, become zeros.
 *
 * Rows past a document's last one belong to the next document and may hold anything, even
 * infinities, which a factor of zero does not cancel.  Kernels zero them (tma_clear_rows) before
 * they multiply such a tile.  Where not even the last row of all documents is known, such a tile
 * is copied row by row (tma_copy_part), and `rows` may be any bound.
 *
 * Source: PTX ISA 8.5, 9.7.8.24.9 (cp.async.bulk.tensor, .multicast::cluster), 5.5 (tensors);
 * CUDA driver API 13.0, cuTensorMapEncodeTiled.
 */
#ifndef CKPT_TRAINER_CUDA_HOPPER_TMA_H
#define CKPT_TRAINER_CUDA_HOPPER_TMA_H

#include "trainer/cuda/cp_async.cuh"
#include "trainer/cuda/hopper/mbarrier.cuh"

#include <cuda.h>

/* Map base[rows][heads][dim] with those strides, in elements; tiles are `tall` rows of one head,
 * in panels of `panel` columns.  False: strides, base or the driver do not allow it. */
bool tma_map(CUtensorMap *map, const void *base, int64_t rows, int64_t row_stride,
             int64_t heads, int64_t head_stride, int64_t dim, int tall, int panel);

/* Map that many matrices [rows, dim], `stride` elements apart: tiles are `tall` rows of one, in
 * panels of 64 columns, addressed by column, row and matrix.  False: as above. */
bool tma_map_rows(CUtensorMap *map, const void *base, int64_t rows, int64_t row_stride,
                  int64_t matrices, int64_t stride, int64_t dim, int tall);

/* As tma_map, for tiles of width D. */
template <int D>
static inline bool tma_map_of(CUtensorMap *map, const void *base, int64_t rows,
                              int64_t row_stride, int64_t heads, int64_t head_stride,
                              int64_t dim, int tall)
{
    return tma_map(map, base, rows, row_stride, heads, head_stride, dim, tall,
                   wgmma_panels<D>::PANEL);
}

/* Load a panel: columns from `col` on, at y and z of the other dims, by one thread;
 * mbarrier_expect_tx has announced its bytes. The map is a parameter of the kernel (grid
 * constant). */
template <typename T>
__device__ __forceinline__ void tma_load_panel(T *to, const CUtensorMap *map, int col, int y,
                                               int z, uint64_t *mbar)
{
#if WGMMA_HERE
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(cuda_shared_addr(to)),
                 "l"(map), "r"(col), "r"(y), "r"(z), "r"(cuda_shared_addr(mbar))
                 : "memory");
#endif
}

/* The same to both blocks of a cluster of two: to the same address in each, where it completes
 * the mbarrier at the same address. */
template <typename T>
__device__ __forceinline__ void tma_multicast_panel(T *to, const CUtensorMap *map, int col,
                                                    int y, int z, uint64_t *mbar)
{
#if WGMMA_HERE
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(cuda_shared_addr(to)),
        "l"(map), "r"(col), "r"(y), "r"(z), "r"(cuda_shared_addr(mbar)), "h"((uint16_t)3)
        : "memory");
#endif
}

/* Load ROWS rows of a head, from `row` on: D * ROWS elements. */
template <int D, int ROWS, typename T>
__device__ __forceinline__ void tma_load_tile(T *tile, const CUtensorMap *map, int head,
                                              int row, uint64_t *mbar)
{
#pragma unroll
    for (int c = 0; c < D; c += wgmma_panels<D>::PANEL)
        tma_load_panel(tile + c * ROWS, map, c, head, row, mbar);
}

/* Zero the rows from `from` on, by THREADS threads, of which this is t.  wgmma_proxy_fence must
 * follow. */
template <int D, int ROWS, int THREADS, typename T>
__device__ __forceinline__ void tma_clear_rows(T *tile, int from, int t)
{
#pragma unroll 1
    for (int x = from * (D / 8) + t; x < ROWS * (D / 8); x += THREADS)
        *(uint4 *)(tile + wgmma_panel_at<D, ROWS>(x / (D / 8), x % (D / 8))) =
            make_uint4(0, 0, 0, 0);
}

/* Without a map: copy ROWS rows of a matrix [rows, dim] whose rows allow 16-byte accesses, by
 * THREADS threads, of which this is t; zeros beyond both. A warp advances by 8 rows, after which
 * the swizzle repeats. */
template <int D, int ROWS, int THREADS, typename T>
__device__ __forceinline__ void tma_copy_rows(T *tile, const T *from, int64_t stride, int rows,
                                              int dim, int t)
{
    const int EACH = D / 8, LANES = EACH % 8 == 0 ? 8 : 4, STEP = THREADS / LANES;
    const int TOGETHER = STEP < 8 ? 8 : STEP, TIMES = THREADS == 32 ? 1 : ROWS / TOGETHER;
    int row = t / LANES, lane = t % LANES;
    const T *at = from + row * stride + lane * 8;

#pragma unroll TIMES
    for (int i = 0; i < ROWS; i += TOGETHER, at += TOGETHER * stride)
#pragma unroll
        for (int s = 0; s < TOGETHER; s += STEP)
#pragma unroll
            for (int c = 0; c < EACH; c += LANES)
                cp_async_16(tile + wgmma_panel_at<D, ROWS>(row + s, lane + c) +
                                i * wgmma_panels<D>::PANEL,
                            at + s * stride + 8 * c,
                            row + s + i < rows && 8 * (lane + c) < dim);
}

/* The same for any rows: `rows` of a matrix [rows, dim], at most ROWS, by THREADS threads, of
 * which this is t; zeros beyond both. The copies are complete after cp_async_wait and
 * wgmma_proxy_fence. */
template <int D, int ROWS, int THREADS, typename T>
__device__ __forceinline__ void tma_copy_part(T *tile, const T *from, int64_t stride, int rows,
                                              int dim, bool vec, int t)
{
#pragma unroll 1
    for (int x = t; x < ROWS * D / 8; x += THREADS) {
        int r = x / (D / 8), c = x % (D / 8);
        const T *at = from + r * stride + 8 * c;
        T *to = tile + wgmma_panel_at<D, ROWS>(r, c);

        if (vec) {
            cp_async_16(to, at, r < rows && 8 * c < dim);
            continue;
        }
#pragma unroll 1
        for (int e = 0; e < 8; e++)
            to[e] = r < rows && 8 * c + e < dim ? at[e] : cuda_from_f32<T>(0.0f);
    }
}

#endif
