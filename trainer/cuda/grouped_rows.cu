/*
 * grouped_rows - products over the rows of each expert, all experts in one launch:
 *   d[slots of e, n] = a[slots of e, k] op(b_e) + beta d
 *
 * A block makes 128 rows of one expert by 256 columns: two groups of four warps, 64 rows each, on
 * Hopper's tensor cores (wgmma.cuh), over k in steps of 64 that arrive four deep.  How many rows
 * an expert has is known on the device alone: a table says which rows of which expert each block
 * takes, and more blocks are launched than there can be work for.
 *
 * Blocks share nothing, so that the L2 cache's speed bounds them, at half of what cuBLASLt makes
 * of large products: this is for many experts of few rows, each of whose products is about as
 * short as its launch.
 */
#include "trainer/cuda/experts.h"

#include "trainer/cuda/attention.cuh"

namespace {

enum { TM = 128, TN = 256, TK = 64, STAGES = 4, BLOCK = 256 };
enum { LEAST_ROWS = 16 };               /* of an expert; fewer only read weights */

/* Multiply-adds of one matrix and an expert's rows: below, the launch counts. */
#define SHORT ((int64_t)1 << 30)

const size_t SHARED = (size_t)STAGES * (TM + TN) * TK * 2;

template <typename T> struct args {
    T             *d;
    const T       *a, *b;
    const int32_t *first, *tile;
    int64_t        lda, ldb, ldd, stride;
    int            n, k;
    float          beta;
};

/* One thread an expert. */
__global__ void __launch_bounds__(ROUTE_MOST)
tiles_kernel(int32_t *tile, const int32_t *first, int E, int most)
{
    __shared__ int sum[ROUTE_MOST];
    int e = (int)threadIdx.x, mine = e < E ? (first[e + 1] - first[e] + TM - 1) / TM : 0, begin;

    sum[e] = mine;
    __syncthreads();
    for (int step = 1; step < ROUTE_MOST; step *= 2) {
        int before = e >= step ? sum[e - step] : 0;

        __syncthreads();
        sum[e] += before;
        __syncthreads();
    }
    begin = sum[e] - mine;
    for (int i = 0; i < mine; i++) {
        tile[2 * (begin + i)] = e;
        tile[2 * (begin + i) + 1] = first[e] + i * TM;
    }
    for (int i = sum[ROUTE_MOST - 1] + e; i < most; i += ROUTE_MOST)
        tile[2 * i] = -1;
}

/* What a block works on. */
template <typename T> struct work {
    const T *a, *b;                     /* its first row; its expert's matrix */
    T       *as, *bs;                   /* [STAGES] tiles of TM x TK, and TN x TK or TK x TN */
    int      rows, cols;                /* of the tile that are there */
};

/* Step kt of k on its way to shared memory. */
template <typename T, bool BT>
__device__ __forceinline__ void bring(const struct args<T> &g, const struct work<T> &w, int kt)
{
    T *as = w.as + kt % STAGES * (TM * TK), *bs = w.bs + kt % STAGES * (TN * TK);

#pragma unroll
    for (int i = (int)threadIdx.x; i < TM * TK / 8; i += BLOCK) {
        int r = i / 8, c = i % 8;
        bool there = r < w.rows;

        copy_16(as + panel_at<TK, TM>(r, c), w.a + (there ? r : 0) * g.lda + kt * TK + c * 8,
                there);
    }
#pragma unroll
    for (int i = (int)threadIdx.x; i < TN * TK / 8; i += BLOCK) {
        int r = BT ? i / 8 : i / 32, c = BT ? i % 8 : i % 32;
        bool there = (BT ? r : 8 * c) < w.cols;

        if (BT)
            copy_16(bs + panel_at<TK, TN>(r, c), w.b + (there ? r : 0) * g.ldb + kt * TK + c * 8,
                    there);
        else
            copy_16(bs + panel_at<TN, TK>(r, c),
                    w.b + (int64_t)(kt * TK + r) * g.ldb + (there ? 8 * c : 0), there);
    }
    copies_end();
}

/* acc += the step's product, for the warp's group. */
template <typename T, bool BT>
__device__ __forceinline__ void multiply(float (&acc)[1][TN / 8][4], const struct work<T> &w,
                                         int kt)
{
    const int ROW = 2 * TK, LEAD = TK * 128;
    int group = alike((int)threadIdx.x / 128);
    uint32_t low_a = tile_low(w.as + kt % STAGES * (TM * TK) + group * 64 * TK, 16);
    uint32_t low_b = tile_low(w.bs + kt % STAGES * (TN * TK), BT ? 16 : LEAD);

#pragma unroll
    for (int k = 0; k < TK; k += 16)
#pragma unroll
        for (int n = 0; n < TN; n += 128)
            wg_tiles<T, 128, !BT>(&acc[0][n / 8], tile_desc<TK>(low_a, k * 2),
                                  tile_desc<TK>(low_b, BT ? n * ROW + k * 2
                                                          : k * 128 + n / 64 * LEAD),
                                  kt > 0 || k > 0);
}

template <typename T, bool BT>
__global__ void __launch_bounds__(BLOCK, 1) rows_kernel(struct args<T> g)
{
#if WGMMA_HERE
    extern __shared__ __align__(1024) unsigned char shared[];
    int e = g.tile[2 * blockIdx.y], row = g.tile[2 * blockIdx.y + 1], steps = g.k / TK;
    int lane = (int)threadIdx.x % 32, own = (int)threadIdx.x / 32 * 16 + lane / 4;
    int64_t col = (int64_t)blockIdx.x * TN;
    float acc[1][TN / 8][4];
    struct work<T> w;

    if (e < 0)
        return;
    w.as = (T *)(void *)shared;
    w.bs = w.as + STAGES * TM * TK;
    w.a = g.a + row * g.lda;
    w.b = g.b + e * g.stride + col * (BT ? g.ldb : 1);
    w.rows = min(g.first[e + 1] - row, (int)TM);
    w.cols = min((int)(g.n - col), (int)TN);
    bring<T, BT>(g, w, 0);
    if (steps > 1)
        bring<T, BT>(g, w, 1);
    else
        copies_end();
    for (int kt = 0; kt < steps; kt++) {
        copies_wait<1>();
        products_see();
        __syncthreads();                /* and all products but the last are done */
        if (kt + 2 < steps)
            bring<T, BT>(g, w, kt + 2);
        else
            copies_end();
        products_begin<true>();
        multiply<T, BT>(acc, w, kt);
        products_group<true>();
        products_wait<true, 1>(acc);
    }
    products_wait<true, 0>(acc);
#pragma unroll
    for (int n = 0; n < TN / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int r = own + 8 * h, c = 8 * n + lane % 4 * 2;
            cuda_pack<T, 2> *to = (cuda_pack<T, 2> *)(g.d + (row + r) * g.ldd + col + c), x;
            float v[2] = {acc[0][n][2 * h], acc[0][n][2 * h + 1]};

            if (r >= w.rows || c >= w.cols)
                continue;
            if (g.beta != 0) {
                x = *to;
                v[0] += g.beta * to_f32(x.at[0]);
                v[1] += g.beta * to_f32(x.at[1]);
            }
            x.at[0] = from_f32<T>(v[0]);
            x.at[1] = from_f32<T>(v[1]);
            *to = x;
        }
#endif
}

template <typename T, bool BT> void launch(struct device *dev, const struct grouped *g)
{
    struct args<T> a = {(T *)g->d, (const T *)g->a, (const T *)g->b, g->route->first,
                        g->route->tile, g->lda, g->ldb, g->ldd, g->stride, (int)g->n, (int)g->k,
                        g->beta};
    dim3 grid((unsigned)cuda_blocks(g->n, TN), (unsigned)grouped_tiles(g->slots, g->E));

    if (!cuda_ok(dev, g->op, cudaFuncSetAttribute(rows_kernel<T, BT>,
                                                  cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  (int)SHARED)))
        return;
    rows_kernel<T, BT><<<grid, BLOCK, SHARED, cuda_of(dev)->stream>>>(a);
    cuda_launched(dev, g->op);
}

} /* namespace */

bool grouped_able(struct device *dev, const struct op_experts *a)
{
    int64_t rows = a->n * a->top_k / a->n_expert;

    return rows >= LEAST_ROWS && rows * a->dim * a->ff <= SHORT && dev->act != CKPT_F32 &&
           a->dim % TK == 0 && a->ff % TK == 0 && a->stride % 8 == 0 && cuda_aligned(a->gate, 16) &&
           cuda_aligned(a->up, 16) && cuda_aligned(a->down, 16) &&
           grouped_tiles(a->n * a->top_k, a->n_expert) <= 65535 && cuda_of(dev)->hopper &&
           cuda_of(dev)->shared_most >= SHARED;
}

void grouped_order(struct device *dev, const struct route *r, int64_t slots, int64_t E)
{
    if (dev->err.code)
        return;
    tiles_kernel<<<1, ROUTE_MOST, 0, cuda_of(dev)->stream>>>(r->tile, r->first, (int)E,
                                                             (int)grouped_tiles(slots, E));
    cuda_launched(dev, "experts");
}

void grouped_rows(struct device *dev, const struct grouped *g)
{
    if (dev->err.code)
        return;
    if (dev->act == CKPT_BF16)
        g->b_t ? launch<__nv_bfloat16, true>(dev, g) : launch<__nv_bfloat16, false>(dev, g);
    else
        g->b_t ? launch<__half, true>(dev, g) : launch<__half, false>(dev, g);
}
