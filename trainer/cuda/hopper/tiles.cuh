/*
 * tiles - products of 16-bit matrices on Hopper by tiles of 128 rows and 256 columns:
 *   sums = a[rows, k] op(b)
 * for kernels that name the tiles and store their sums.
 *
 * A block has two warpgroups, 64 rows each, on the tensor cores (wgmma.cuh).  One more warp
 * loads steps of 64 of k by TMA (tma.cuh), four deep, also across the border between tiles.
 * One group is some steps ahead of the other, so that each stores its tile during the products
 * of the other.
 *
 * Blocks are persistent and take tiles in pairs (clusters).  Their reads would exceed the L2
 * cache, so each block of a pair loads half of the shared factor for both: the columns of two
 * tiles one below the other, the rows of two beside each other.
 *
 * Sums depend on k alone: a row has the same bits wherever it is, and however many rows there
 * are.
 *
 * Source: CUTLASS 3.5, sm90_mma_tma_gmma_ss_warpspecialized.hpp (the pipeline of a cluster).
 */
#ifndef CKPT_TRAINER_CUDA_HOPPER_TILES_H
#define CKPT_TRAINER_CUDA_HOPPER_TILES_H

#include "trainer/cuda/hopper/tma.cuh"

enum { TILE_ROWS = 128, TILE_COLS = 256, TILE_HALF = TILE_COLS / 2, TILE_K = 64 };
enum { TILE_STAGES = 4, TILE_WARPS = 8, TILE_BLOCK = 384, TILE_PAIR = 2 };
enum { TILE_MANY = 232, TILE_FEW = 40 };    /* registers per thread with accumulators; without */
enum { TILE_AHEAD = 2 };                    /* steps by which the first group is ahead */

/* A block's shared memory; out: staging of each warp's stores. */
template <typename T> struct tile_pool {
    T        a[TILE_STAGES][TILE_ROWS * TILE_K], b[TILE_STAGES][TILE_COLS * TILE_K];
    T        out[TILE_WARPS][16 * TILE_HALF];
    uint64_t full[TILE_STAGES], free[TILE_STAGES];
};

enum { TILE_PARTS = 4 };

/* Maps of products that share their sums, each over its own k: rows of a and of b.  Kernels have
 * them as a parameter. */
struct tile_maps {
    CUtensorMap a[TILE_PARTS], b[TILE_PARTS];
    int         k[TILE_PARTS], parts, steps;        /* steps: of all */
};

/* A block's tile: `rows` valid rows of a from row on; 128 columns of b's matrix from col on and
 * 128 from col + second on, of which those below `cols` (from either) are valid.  beside: the
 * other block of the cluster has the same rows, else the same columns. */
struct tile {
    int  row, rows, col, second, cols, matrix;
    bool beside;
};

/* How many pairs of row tiles go over all columns before the next ones: their part of a stays in
 * the L2 cache. */
static inline int tiles_band(int64_t k)
{
    int64_t fit = ((int64_t)16 << 20) / (TILE_PAIR * TILE_ROWS * 2 * k);

    return fit < 4 ? 4 : fit > 32 ? 32 : (int)fit;
}

/* The pair of row tiles and the column tile (of `across`) at place `at` of that order. */
__device__ __forceinline__ void tiles_place(int at, int pairs, int across, int band, int *pair,
                                            int *col)
{
    int begin = at / (band * across) * band, tall = min(band, pairs - begin);

    at -= begin * across;
    *pair = begin + at % tall;
    *col = at / tall;
}

/* -- loading ----------------------------------------------------------------------------------- */

/* Load a step of k from `at` on, by one thread.  BT: rows of b are the product's columns. */
template <typename T, bool BT>
__device__ __forceinline__ void tiles_load_step(const struct tile_maps &maps, int part,
                                                const struct tile &t, T *a, T *b, int at,
                                                uint64_t *full)
{
    const CUtensorMap *map_a = &maps.a[part], *map_b = &maps.b[part];
    int block = hopper_cluster_rank();

    mbarrier_expect_tx(full, (TILE_ROWS + TILE_COLS) * TILE_K * (int)sizeof(T));
    if (t.beside)
        tma_multicast_panel(a + block * 64 * TILE_K, map_a, at, t.row + block * 64, 0, full);
    else
        for (int r = 0; r < TILE_ROWS; r += 64)
            tma_load_panel(a + r * TILE_K, map_a, at, t.row + r, 0, full);
    for (int h = 0; h < 2; h++) {
        T *to = b + h * TILE_HALF * TILE_K;
        int col = t.col + h * t.second;

        if (BT && t.beside)
            tma_load_panel(to, map_b, at, col, t.matrix, full);
        else if (BT && h == block)
            tma_multicast_panel(to, map_b, at, col, t.matrix, full);
        for (int c = 0; !BT && c < TILE_HALF; c += 64)
            if (t.beside)
                tma_load_panel(to + c * TILE_K, map_b, col + c, at, t.matrix, full);
            else if (h == block)
                tma_multicast_panel(to + c * TILE_K, map_b, col + c, at, t.matrix, full);
    }
}

/* By a warp. */
template <typename T, bool BT, typename Next>
__device__ __forceinline__ void tiles_load(const struct tile_maps &maps, struct tile_pool<T> *m,
                                           Next next)
{
    struct tile t;
    int it = 0;

    for (int at = (int)blockIdx.x / TILE_PAIR; next(&t, at); at += (int)gridDim.x / TILE_PAIR)
        for (int p = 0; p < maps.parts; p++)
            for (int i = 0; i < maps.k[p]; i += TILE_K, it++) {
                int s = it % TILE_STAGES;

                if (it >= TILE_STAGES)
                    mbarrier_wait(&m->free[s], it / TILE_STAGES - 1);
                if (threadIdx.x % 32 == 0)
                    tiles_load_step<T, BT>(maps, p, t, m->a[s], m->b[s], i, &m->full[s]);
                __syncwarp();
            }
}

/* -- multiplying ------------------------------------------------------------------------------- */

template <typename T, bool BT, typename Next, typename Put>
__device__ __forceinline__ void tiles_multiply(struct tile_pool<T> *m, int steps, Next next,
                                               Put put)
{
    const int A = TILE_ROWS * TILE_K * (int)sizeof(T), B = TILE_COLS * TILE_K * (int)sizeof(T);
    int lane = (int)threadIdx.x % 32, warp = cuda_uniform((int)threadIdx.x / 32), it = 0;
    uint32_t low_a = wgmma_desc_low(m->a[0] + warp / 4 * 64 * TILE_K, 16);
    uint32_t low_b = wgmma_desc_low(m->b[0], BT ? 16 : TILE_K * 128);
    struct tile t;
    /* This place is free once both blocks have read it: their copies go to both. */
    auto let_go = [&](int step) {
        if (lane < TILE_PAIR)
            mbarrier_arrive_remote(&m->free[step % TILE_STAGES], lane);
    };

    if (warp / 4)
        hopper_bar_sync<32 * TILE_WARPS>(1);
    for (int at = (int)blockIdx.x / TILE_PAIR; next(&t, at); at += (int)gridDim.x / TILE_PAIR) {
        float sums[1][TILE_COLS / 8][4];

        for (int i = 0; i < steps; i++, it++) {
            int s = it % TILE_STAGES;

            mbarrier_wait(&m->full[s], it / TILE_STAGES);
            wgmma_fence<true>();
#pragma unroll
            for (int j = 0; j < TILE_K; j += 16)
                wgmma_ss<T, TILE_COLS, !BT>(
                    sums[0], wgmma_desc<TILE_K>(low_a, s * A + j * 2),
                    wgmma_desc<TILE_K>(low_b, s * B + j * (BT ? 2 : 128)), i > 0 || j > 0);
            wgmma_commit<true>();
            wgmma_wait<true, 1>(sums);
            if (i > 0)
                let_go(it - 1);
            if (it + 1 == TILE_AHEAD && !(warp / 4))
                hopper_bar_arrive<32 * TILE_WARPS>(1);
        }
        wgmma_wait<true, 0>(sums);
        let_go(it - 1);
        put(t, m->out[warp], warp * 16, sums);
    }
    if (it < TILE_AHEAD && !(warp / 4))
        hopper_bar_arrive<32 * TILE_WARPS>(1);
}

/*
 * All tiles, by all threads of all blocks.
 *   next(&t, at): the block's part of its cluster's tile `at`; false: none is left.  Whole
 *                 warps call it, with rising `at`.
 *   put(t, out, row, sums): store a warp's 16 rows of the tile, from `row` on, as fragments.
 */
template <typename T, bool BT, typename Next, typename Put>
__device__ __forceinline__ void tiles_all(const struct tile_maps &maps, Next next, Put put)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    struct tile_pool<T> *m = (struct tile_pool<T> *)(void *)shared;

    if (threadIdx.x == 0) {
        for (int s = 0; s < TILE_STAGES; s++) {
            mbarrier_init(&m->full[s], 1);
            mbarrier_init(&m->free[s], TILE_PAIR * TILE_WARPS);
        }
        mbarrier_fence_init();
    }
    hopper_cluster_sync();
    if (threadIdx.x < 32 * TILE_WARPS) {
        hopper_registers_inc<TILE_MANY>();
        tiles_multiply<T, BT>(m, maps.steps, next, put);
    } else {
        hopper_registers_dec<TILE_FEW>();
        if (threadIdx.x < 32 * TILE_WARPS + 32)
            tiles_load<T, BT>(maps, m, next);
    }
    hopper_cluster_sync();              /* wait for copies and arrivals of the other block */
}

/* -- launching --------------------------------------------------------------------------------- */

static inline bool tiles_supported(const struct cuda_device *d)
{
    return d->hopper && d->sms >= TILE_PAIR && d->shared_most >= sizeof(struct tile_pool<__half>);
}

/* Add a product of a[rows, k] and b: that many matrices [n, k] (bt) or [k, n], `stride` elements
 * apart.  False: addresses or strides do not allow it. */
struct tile_part {
    const void *a, *b;
    int64_t     rows, n, k, lda, ldb, matrices, stride;
};

static inline bool tiles_add(struct tile_maps *to, const struct tile_part *p, bool bt)
{
    int64_t rows = bt ? p->n : p->k, stride = p->matrices > 1 ? p->stride : rows * p->ldb;
    int i = to->parts;

    if (i == TILE_PARTS ||
        !tma_map_rows(&to->a[i], p->a, p->rows, p->lda, 1, p->rows * p->lda, p->k, 64) ||
        !tma_map_rows(&to->b[i], p->b, rows, p->ldb, p->matrices, stride, bt ? p->k : p->n,
                      bt ? TILE_HALF : TILE_K))
        return false;
    to->k[i] = (int)p->k;
    to->steps += (int)cuda_blocks(p->k, TILE_K);
    to->parts++;
    return true;
}

/* Launch on all multiprocessors, or as few as these tiles of clusters need. */
template <typename T, typename... P, typename... A>
static inline void tiles_launch(struct device *dev, const char *op, int64_t tiles,
                                void (*kernel)(P...), const A &...args)
{
    int64_t clusters = cuda_of(dev)->sms / TILE_PAIR;
    cudaLaunchAttribute pair = {};
    cudaLaunchConfig_t c = {};

    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = TILE_PAIR;
    pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    c.gridDim = dim3((unsigned)((tiles < clusters ? tiles : clusters) * TILE_PAIR));
    c.blockDim = dim3(TILE_BLOCK);
    c.dynamicSmemBytes = sizeof(struct tile_pool<T>);
    c.stream = cuda_of(dev)->stream;
    c.attrs = &pair;
    c.numAttrs = 1;
    if (cuda_ok(dev, op, cuda_allow_shared(kernel, c.dynamicSmemBytes)))
        cuda_ok(dev, op, cudaLaunchKernelEx(&c, kernel, P(args)...));
}

#endif
