/*
 * grouped_rows - products over the rows of each expert, all experts in one launch, on Hopper
 * (tiles.cuh):
 *   d[slots of e, n] = a[slots of e, k] op(b_e) + beta d
 *
 * An expert's tiles go in pairs, one below the other; its last, where their number is odd, in
 * pairs side by side.  Only the device knows how many rows an expert has: each block counts
 * tiles by a table of the experts' first tiles.
 *
 * With gated, half of a tile's columns are the gate's and half up's, and act(gate) * up is
 * written too: b_e is both matrices, d both outputs.
 */
#include "trainer/cuda/act.h"
#include "trainer/cuda/moe/experts.h"
#include "trainer/cuda/hopper/tiles.cuh"

namespace {

enum { LEAST_ROWS = 16 };  /* average rows per expert; with fewer, time goes into reading weights */

struct args {
    void          *d, *gated;
    const int32_t *first;               /* [E + 1] of each expert's slots */
    const int2    *start;               /* [E + 1] pairs of tiles before an expert's; single ones */
    int64_t        ldd;
    int            E, n, band;
    float          beta;
};

/* One thread per expert. */
__global__ void __launch_bounds__(ROUTE_MOST) start_kernel(int2 *start, const int32_t *first, int E)
{
    __shared__ int2 sum[ROUTE_MOST];
    int e = (int)threadIdx.x;
    int tiles = e < E ? (first[e + 1] - first[e] + TILE_ROWS - 1) / TILE_ROWS : 0;

    sum[e] = make_int2(tiles / 2, tiles % 2);
    __syncthreads();
    for (int step = 1; step < ROUTE_MOST; step *= 2) {
        int2 before = e >= step ? sum[e - step] : make_int2(0, 0);

        __syncthreads();
        sum[e].x += before.x;
        sum[e].y += before.y;
        __syncthreads();
    }
    if (e < E)
        start[e + 1] = sum[e];
    if (e == 0)
        start[0] = make_int2(0, 0);
}

[[maybe_unused]] __device__ __forceinline__ int across_of(const struct args &g)
{
    return (g.n + TILE_COLS - 1) / TILE_COLS;
}

/* Tiles of clusters before an expert's. */
[[maybe_unused]] __device__ __forceinline__ int tiles_before(const struct args &g, int e)
{
    int2 at = g.start[e];

    return at.x * across_of(g) + at.y * ((across_of(g) + 1) / 2);
}

/* The block's part of its cluster's tile `at`, which belongs to expert t->matrix or a later
 * one. */
template <bool GATED>
__device__ __forceinline__ bool tile_of(const struct args &g, struct tile *t, int at)
{
    int lane = (int)threadIdx.x % 32, across = across_of(g), block = hopper_cluster_rank();
    int more, pairs, pair, col;

    if (at >= tiles_before(g, g.E))
        return false;
    do {                                /* the last expert whose tiles begin at or before `at` */
        int e = t->matrix + 1 + lane;

        more = __popc(__ballot_sync(0xffffffffu, e < g.E && tiles_before(g, e) <= at));
        t->matrix += more;
    } while (more == 32);
    at -= tiles_before(g, t->matrix);
    pairs = g.start[t->matrix + 1].x - g.start[t->matrix].x;
    t->beside = at >= pairs * across;
    if (t->beside) {
        pair = pairs;
        col = TILE_PAIR * (at - pairs * across) + block;
    } else {
        tiles_place(at, pairs, across, g.band, &pair, &col);
    }
    t->row = g.first[t->matrix] + (pair * TILE_PAIR + (t->beside ? 0 : block)) * TILE_ROWS;
    t->rows = min(g.first[t->matrix + 1] - t->row, (int)TILE_ROWS);
    t->col = col * (GATED ? TILE_HALF : TILE_COLS);
    t->second = GATED ? g.n / 2 : TILE_HALF;
    t->cols = GATED ? g.n / 2 : g.n;
    return true;
}

/* sums += beta d, in the layout of fragments. */
template <typename T>
__device__ __forceinline__ void add_old(float (&sums)[TILE_COLS / 8][4], const T *d, int64_t ldd,
                                        int rows, int cols, float beta)
{
    int row = (int)threadIdx.x % 32 / 4, col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < TILE_COLS / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (row + 8 * h < rows && 8 * n + col < cols) {
                const T *old = d + (row + 8 * h) * ldd + 8 * n + col;
                cuda_pack<T, 2> x = *(const cuda_pack<T, 2> *)old;

                sums[n][2 * h] += beta * cuda_to_f32(x.at[0]);
                sums[n][2 * h + 1] += beta * cuda_to_f32(x.at[1]);
            }
}

template <typename T, bool GATED>
__device__ __forceinline__ void put(const struct args &g, const struct tile &t, T *mine, int row,
                                    float (&all)[1][TILE_COLS / 8][4])
{
    float (&sums)[TILE_COLS / 8][4] = all[0];
    int rows = t.rows - row, cols = t.cols - t.col;
    T *d = (T *)g.d + (t.row + row) * g.ldd + t.col;

    if (!GATED && g.beta != 0)
        add_old<T>(sums, d, g.ldd, rows, cols, g.beta);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        wgmma_store_fragments<TILE_HALF, 16>(d + h * t.second, g.ldd, mine, 0, rows,
                                            GATED ? cols : cols - h * TILE_HALF,
                                            sums + h * TILE_HALF / 8, 1.0f);
        __syncwarp();
    }
    if constexpr (GATED) {
        wgmma_hold(all);                /* no copies as they were written */
#pragma unroll
        for (int n = 0; n < TILE_HALF / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[n][e] = act_value<OP_ACT_SILU>(cuda_to_f32(cuda_from_f32<T>(sums[n][e]))) *
                             cuda_to_f32(cuda_from_f32<T>(sums[n + TILE_HALF / 8][e]));
        wgmma_store_fragments<TILE_HALF, 16>((T *)g.gated + (int64_t)(t.row + row) * t.second +
                                                t.col,
                                            t.second, mine, 0, rows, cols, sums, 1.0f);
        __syncwarp();
    }
}

template <typename T, bool BT, bool GATED>
__global__ void __launch_bounds__(TILE_BLOCK, 1)
    rows_kernel(const __grid_constant__ struct args g,
                const __grid_constant__ struct tile_maps maps)
{
#if WGMMA_HERE
    int e = 0;

    tiles_all<T, BT>(
        maps,
        [&](struct tile *t, int at) {
            bool there;

            t->matrix = e;
            there = tile_of<GATED>(g, t, at);
            e = t->matrix;
            return there;
        },
        [&](const struct tile &t, T *out, int row, float (&sums)[1][TILE_COLS / 8][4]) {
            put<T, GATED>(g, t, out, row, sums);
        });
#endif
}

template <typename T, bool BT, bool GATED>
void launch(struct device *dev, const struct moe_grouped *g)
{
    struct args a = {g->d, g->gated, g->route->first, g->route->start, g->ldd, (int)g->E,
                     (int)g->n, tiles_band(g->k), g->beta};
    struct tile_part p = {g->a, g->b, g->slots, g->n, g->k, g->lda, g->ldb, g->E, g->stride};
    struct tile_maps maps = {};

    if (tiles_add(&maps, &p, BT))
        tiles_launch<T>(dev, g->op, INT32_MAX, rows_kernel<T, BT, GATED>, a, maps);
    else
        cuda_ok(dev, g->op, cudaErrorNotSupported);
}

template <typename T> void launch_for(struct device *dev, const struct moe_grouped *g)
{
    if (g->gated)
        launch<T, true, true>(dev, g);
    else if (g->b_t)
        launch<T, true, false>(dev, g);
    else
        launch<T, false, false>(dev, g);
}

} /* namespace */

bool moe_grouped_supported(struct device *dev, const struct op_experts *a)
{
    int64_t slots = a->n * a->top_k, widest = a->dim < 2 * a->ff ? 2 * a->ff : a->dim;
    int64_t tiles = (slots / (TILE_PAIR * TILE_ROWS) + a->n_expert) * (widest / TILE_COLS + 1);
    return slots >= LEAST_ROWS * a->n_expert && dev->act != CKPT_F32 && a->dim % TILE_K == 0 &&
           a->ff % TILE_K == 0 && tiles <= INT32_MAX && tiles_supported(cuda_of(dev)) &&
           a->stride % 8 == 0 && cuda_aligned(a->gate, 16) && cuda_aligned(a->up, 16) &&
           cuda_aligned(a->down, 16);
}

void moe_grouped_start(struct device *dev, const struct moe_route *r, int64_t E)
{
    if (dev->err.code)
        return;
    start_kernel<<<1, ROUTE_MOST, 0, cuda_of(dev)->stream>>>(r->start, r->first, (int)E);
    cuda_launched(dev, "experts");
}

void moe_grouped_rows(struct device *dev, const struct moe_grouped *g)
{
    if (dev->err.code)
        return;
    if (dev->act == CKPT_BF16)
        launch_for<__nv_bfloat16>(dev, g);
    else
        launch_for<__half>(dev, g);
}
