/*
 * grouped_rows - products over the rows of each expert, all experts in one launch, on Hopper:
 *   d[slots of e, n] = a[slots of e, k] op(b_e) + beta d
 *
 * A block makes a tile of 128 rows of one expert by 256 columns: two groups of four warps, 64 rows
 * each, on the tensor cores (wgmma.cuh), over k in steps of 64 which a warp more has the chip bring
 * four deep (tensor_map.cuh), over the border from one tile to the next.
 *
 * Blocks stay, and take tiles in turn by twos (clusters).  What they read would be too much for the
 * L2 cache, so that each brings half of what both need to both: of two tiles one below the other
 * the factor of their columns; of two beside each other, for an expert's last rows where its tiles
 * are odd in number, the factor of their rows.  One of the two groups is some steps ahead, so that
 * each writes what it has made beside the other's products.
 *
 * With gated, half of a tile's columns are a gate's and half what it gates, whose product is
 * written too: b_e is both matrices, d both factors.
 *
 * How many rows an expert has is known on the device alone, where each block counts tiles by a
 * table of where experts' begin.  Sums depend on k alone: a row has the same bits wherever it is.
 */
#include "trainer/cuda/act.h"
#include "trainer/cuda/experts.h"
#include "trainer/cuda/tensor_map.cuh"

namespace {

enum { TM = 128, TN = 256, TK = 64, HALF = TN / 2, STAGES = 4, GROUP = 128, BLOCK = 3 * GROUP };
enum { WARPS = 2 * GROUP / 32, BOTH = 2 };          /* with sums; blocks of a cluster */
enum { MANY = 232, FEW = 40 };                      /* registers of a thread with sums; without */
enum { BAND = 8 };                                  /* pairs of rows' tiles that share columns */
enum { AHEAD = 2 };                                 /* steps, of the first group */
enum { LEAST_ROWS = 16 };                           /* of an expert; fewer only read weights */

template <typename T> struct pool {
    T        a[STAGES][TM * TK], b[STAGES][TN * TK];
    T        out[WARPS][16 * HALF];
    uint64_t full[STAGES], free[STAGES];
};

struct maps { CUtensorMap a, b; };

struct args {
    void          *d, *gated;
    const int32_t *first;               /* [E + 1] of each expert's slots */
    const int2    *start;               /* [E + 1] pairs of tiles before an expert's; odd ones */
    int64_t        ldd;
    int            E, n, k, half;       /* half: n / 2 */
    float          beta;
};

/* A block's tile: `rows` of expert e from row on, columns from col on; beside: its cluster's other
 * tile has the same rows, else the same columns. */
struct tile {
    int  e, row, rows, col;
    bool beside;
};

/* One thread an expert. */
__global__ void __launch_bounds__(ROUTE_MOST) start_kernel(int2 *start, const int32_t *first, int E)
{
    __shared__ int2 sum[ROUTE_MOST];
    int e = (int)threadIdx.x, tiles = e < E ? (first[e + 1] - first[e] + TM - 1) / TM : 0;

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

/* Tiles of clusters before an expert's. */
__device__ __forceinline__ int tiles_before(const struct args &g, int e)
{
    int across = (g.n + TN - 1) / TN;
    int2 at = g.start[e];

    return at.x * across + at.y * ((across + 1) / 2);
}

/* The block's part of its cluster's tile `at`, which lies behind the one before; false: there is
 * none.  The warp calls it. */
[[maybe_unused]] __device__ __forceinline__ bool tile_of(const struct args &g, struct tile *t,
                                                         int at)
{
    int lane = (int)threadIdx.x % 32, across = (g.n + TN - 1) / TN, block = cluster_block();
    int more, left, pairs, begin, end;

    if (at >= tiles_before(g, g.E))
        return false;
    do {                                /* the last whose tiles do not begin behind it */
        int e = t->e + 1 + lane;

        more = __popc(__ballot_sync(0xffffffffu, e < g.E && tiles_before(g, e) <= at));
        t->e += more;
    } while (more == 32);
    left = at - tiles_before(g, t->e);
    pairs = g.start[t->e + 1].x - g.start[t->e].x;
    begin = g.first[t->e];
    end = g.first[t->e + 1];
    t->beside = left >= pairs * across;
    if (t->beside) {
        t->row = begin + pairs * BOTH * TM;
        t->col = (BOTH * (left - pairs * across) + block) * TN;
    } else {
        int band = left / (BAND * across) * BAND, tall = min(BAND, pairs - band);

        left -= band * across;
        t->row = begin + ((band + left % tall) * BOTH + block) * TM;
        t->col = left / tall * TN;
    }
    t->rows = min(end - t->row, (int)TM);
    return true;
}

/* -- what is read ------------------------------------------------------------------------------ */

/* A step of k from `at` on, by one thread. */
template <typename T, bool BT, bool GATED>
__device__ __forceinline__ void bring_step(const struct args &g, const struct maps &maps,
                                           const struct tile &t, T *a, T *b, int at,
                                           uint64_t *full)
{
    int block = cluster_block(), begin = GATED ? t.col / 2 : t.col;

    gate_expect(full, (TM + TN) * TK * (int)sizeof(T));
    if (t.beside)
        bring_panel_to_both(a + block * 64 * TK, &maps.a, at, 0, t.row + block * 64, full);
    else
        for (int r = 0; r < TM; r += 64)
            bring_panel(a + r * TK, &maps.a, at, 0, t.row + r, full);
    for (int h = 0; h < 2; h++) {
        T *to = b + h * HALF * TK;
        int col = begin + h * (GATED ? g.half : HALF);

        if (BT && t.beside)
            bring_panel(to, &maps.b, at, t.e, col, full);
        else if (BT && h == block)
            bring_panel_to_both(to, &maps.b, at, t.e, col, full);
        for (int c = 0; !BT && c < HALF; c += 64)
            if (t.beside)
                bring_panel(to + c * TK, &maps.b, col + c, t.e, at, full);
            else if (h == block)
                bring_panel_to_both(to + c * TK, &maps.b, col + c, t.e, at, full);
    }
}

/* By a warp. */
template <typename T, bool BT, bool GATED>
__device__ __forceinline__ void bring_all(const struct args &g, const struct maps &maps,
                                          struct pool<T> *m)
{
    struct tile t = {};
    int it = 0;

    for (int at = (int)blockIdx.x / BOTH; tile_of(g, &t, at); at += (int)gridDim.x / BOTH)
        for (int k = 0; k < g.k; k += TK, it++) {
            int s = it % STAGES;

            if (it >= STAGES)
                gate_wait(&m->free[s], it / STAGES - 1);
            if (threadIdx.x % 32 == 0)
                bring_step<T, BT, GATED>(g, maps, t, m->a[s], m->b[s], k, &m->full[s]);
            __syncwarp();
        }
}

/* -- what is made ------------------------------------------------------------------------------ */

/* sums += beta d, as the fragments lie. */
template <typename T>
__device__ __forceinline__ void add_old(float (&sums)[TN / 8][4], const T *d, int64_t ldd, int rows,
                                        int cols, float beta)
{
    int row = (int)threadIdx.x % 32 / 4, col = (int)threadIdx.x % 4 * 2;

#pragma unroll
    for (int n = 0; n < TN / 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (row + 8 * h < rows && 8 * n + col < cols) {
                const T *old = d + (row + 8 * h) * ldd + 8 * n + col;
                cuda_pack<T, 2> x = *(const cuda_pack<T, 2> *)old;

                sums[n][2 * h] += beta * to_f32(x.at[0]);
                sums[n][2 * h + 1] += beta * to_f32(x.at[1]);
            }
}

/* A warp's 16 rows of the tile, from `row` on. */
template <typename T, bool GATED>
__device__ __forceinline__ void put(const struct args &g, const struct tile &t, T *mine, int row,
                                    float (&all)[1][TN / 8][4])
{
    float (&sums)[TN / 8][4] = all[0];
    int begin = GATED ? t.col / 2 : t.col, rows = t.rows - row;
    int cols = (GATED ? g.half : g.n) - begin;
    T *d = (T *)g.d + (t.row + row) * g.ldd + begin;

    if (!GATED && g.beta != 0)
        add_old<T>(sums, d, g.ldd, rows, cols, g.beta);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        put_fragments<HALF, 16>(d + h * (GATED ? g.half : HALF), g.ldd, mine, 0, rows,
                                GATED ? cols : cols - h * HALF, sums + h * HALF / 8, 1.0f);
        __syncwarp();
    }
    if constexpr (GATED) {
        hold(all);                      /* no copies as they were written */
#pragma unroll
        for (int n = 0; n < HALF / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                sums[n][e] = act_value<OP_ACT_SILU>(to_f32(from_f32<T>(sums[n][e]))) *
                             to_f32(from_f32<T>(sums[n + HALF / 8][e]));
        put_fragments<HALF, 16>((T *)g.gated + (int64_t)(t.row + row) * g.half + begin, g.half,
                                mine, 0, rows, cols, sums, 1.0f);
        __syncwarp();
    }
}

template <typename T, bool BT, bool GATED>
__device__ __forceinline__ void multiply_all(const struct args &g, struct pool<T> *m)
{
    const int A = TM * TK * (int)sizeof(T), B = TN * TK * (int)sizeof(T);
    int lane = (int)threadIdx.x % 32, warp = alike((int)threadIdx.x / 32), it = 0;
    uint32_t low_a = tile_low(m->a[0] + warp / 4 * 64 * TK, 16);
    uint32_t low_b = tile_low(m->b[0], BT ? 16 : TK * 128);
    struct tile t = {};
    /* Both blocks' copies to this place wait for both. */
    auto let_go = [&](int step) {
        if (lane < BOTH)
            gate_arrive_at(&m->free[step % STAGES], lane);
    };

    if (warp / 4)
        meet_at<2 * GROUP>(1);
    for (int at = (int)blockIdx.x / BOTH; tile_of(g, &t, at); at += (int)gridDim.x / BOTH) {
        float sums[1][TN / 8][4];

        for (int k = 0; k < g.k; k += TK, it++) {
            int s = it % STAGES;

            gate_wait(&m->full[s], it / STAGES);
            products_begin<true>();
#pragma unroll
            for (int i = 0; i < TK; i += 16)
                wg_tiles<T, TN, !BT>(sums[0], tile_desc<TK>(low_a, s * A + i * 2),
                                     tile_desc<TK>(low_b, s * B + i * (BT ? 2 : 128)),
                                     k > 0 || i > 0);
            products_group<true>();
            products_wait<true, 1>(sums);
            if (k > 0)
                let_go(it - 1);
            if (it + 1 == AHEAD && !(warp / 4))
                pass_by<2 * GROUP>(1);
        }
        products_wait<true, 0>(sums);
        let_go(it - 1);
        put<T, GATED>(g, t, m->out[warp], warp * 16, sums);
    }
    if (it < AHEAD && !(warp / 4))
        pass_by<2 * GROUP>(1);
}

template <typename T, bool BT, bool GATED>
__global__ void __launch_bounds__(BLOCK, 1)
    rows_kernel(const __grid_constant__ struct args g, const __grid_constant__ struct maps maps)
{
#if WGMMA_HERE
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pool<T> *m = (struct pool<T> *)(void *)shared;

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            gate_init(&m->full[s], 1);
            gate_init(&m->free[s], BOTH * WARPS);
        }
        gates_seen();
    }
    cluster_meets();
    if (threadIdx.x < 2 * GROUP) {
        take_registers<MANY>();
        multiply_all<T, BT, GATED>(g, m);
    } else {
        leave_registers<FEW>();
        if (threadIdx.x < 2 * GROUP + 32)
            bring_all<T, BT, GATED>(g, maps, m);
    }
    cluster_meets();                    /* the other one's copies and gates end here too */
#endif
}

/* Rows of b_e are its columns [n] with BT, else k. */
bool map_of_b(CUtensorMap *map, const void *b, int64_t n, int64_t k, int64_t ldb, int64_t E,
              int64_t stride, bool bt)
{
    return bt ? tensor_map(map, b, n, ldb, E, stride, k, HALF, TK)
              : tensor_map(map, b, k, ldb, E, stride, n, TK, 64);
}

template <typename T, bool BT, bool GATED>
void launch(struct device *dev, const struct grouped *g)
{
    struct args a = {g->d, g->gated, g->route->first, g->route->start, g->ldd, (int)g->E,
                     (int)g->n, (int)g->k, (int)(g->n / 2), g->beta};
    cudaLaunchAttribute pair = {};
    cudaLaunchConfig_t c = {};
    struct maps maps;

    if (!tensor_map(&maps.a, g->a, g->slots, g->lda, 1, 8, g->k, 64, TK) ||
        !map_of_b(&maps.b, g->b, g->n, g->k, g->ldb, g->E, g->stride, BT)) {
        cuda_ok(dev, g->op, cudaErrorNotSupported);
        return;
    }
    pair.id = cudaLaunchAttributeClusterDimension;
    pair.val.clusterDim.x = BOTH;
    pair.val.clusterDim.y = pair.val.clusterDim.z = 1;
    c.gridDim = dim3((unsigned)(cuda_of(dev)->sms / BOTH * BOTH));
    c.blockDim = dim3(BLOCK);
    c.dynamicSmemBytes = sizeof(struct pool<T>);
    c.stream = cuda_of(dev)->stream;
    c.attrs = &pair;
    c.numAttrs = 1;
    if (cuda_ok(dev, g->op, may_share(rows_kernel<T, BT, GATED>, c.dynamicSmemBytes)))
        cuda_ok(dev, g->op, cudaLaunchKernelEx(&c, rows_kernel<T, BT, GATED>, a, maps));
}

template <typename T> void launch_for(struct device *dev, const struct grouped *g)
{
    if (g->gated)
        launch<T, true, true>(dev, g);
    else if (g->b_t)
        launch<T, true, false>(dev, g);
    else
        launch<T, false, false>(dev, g);
}

} /* namespace */

bool grouped_able(struct device *dev, const struct op_experts *a)
{
    int64_t slots = a->n * a->top_k, widest = a->dim < 2 * a->ff ? 2 * a->ff : a->dim;
    int64_t tiles = (slots / (BOTH * TM) + a->n_expert) * (widest / TN + 1);
    CUtensorMap map;

    return slots >= LEAST_ROWS * a->n_expert && dev->act != CKPT_F32 && a->dim % TK == 0 &&
           a->ff % TK == 0 && tiles <= INT32_MAX && cuda_of(dev)->hopper &&
           cuda_of(dev)->sms >= BOTH && cuda_of(dev)->shared_most >= sizeof(struct pool<__half>) &&
           map_of_b(&map, a->gate, a->ff, a->dim, a->dim, a->n_expert, a->stride, true) &&
           cuda_aligned(a->up, 16) && cuda_aligned(a->down, 16);
}

void grouped_order(struct device *dev, const struct route *r, int64_t E)
{
    if (dev->err.code)
        return;
    start_kernel<<<1, ROUTE_MOST, 0, cuda_of(dev)->stream>>>(r->start, r->first, (int)E);
    cuda_launched(dev, "experts");
}

void grouped_rows(struct device *dev, const struct grouped *g)
{
    if (dev->err.code)
        return;
    if (dev->act == CKPT_BF16)
        launch_for<__nv_bfloat16>(dev, g);
    else
        launch_for<__half>(dev, g);
}
