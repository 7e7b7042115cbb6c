/*
 * gemv_ring - projections of a few rows on Hopper: weights stream through rings in shared
 * memory.
 *
 * A block on each multiprocessor takes neighbouring columns of the output, its warps one after
 * another.  Each warp has a ring of its own, which one of its lanes keeps full by bulk copies
 * of whole pieces of rows; it waits for no other warp. x is in shared memory, after its norm
 * where there is one: every block computes the norm for itself, which takes less time than a
 * kernel in between.  Lane and order of each term are those of gemv.cu.
 *
 * In a captured graph, where weights do not change, a kernel fills its rings before it waits
 * for x.  Rings are so large that no two blocks share a multiprocessor: a block starts when one
 * of the previous kernel has ended, and memory goes on reading while the others end and x is
 * computed.
 *
 * Tried in a chain of such kernels, weights of a token of Qwen3-8B without its head, 3.39 ms at
 * 4.1 TB/s: 16 warps with two pieces of 4 KB, three where halves share them, 3.27 ms, two
 * everywhere 3.29, of 2 KB 3.43; 12 warps with three 3.32; 8 warps with four 3.47, with three,
 * two blocks side by side, 3.43, and 3.94 where the next kernel starts after the last copy
 * (some multiprocessors get two blocks); kernels for the norms take 0.07 more; gemv.cu 3.77.
 *
 * Source: PTX ISA 8.5, 9.7.9.25.5 (cp.async.bulk), 9.7.13.13 (griddepcontrol).
 */
#include "trainer/cuda/act.h"
#include "trainer/cuda/hopper/mbarrier.cuh"
#include "trainer/cuda/matmul/gemv.h"
#include "trainer/cuda/row.h"

enum {
    WARPS = 16, THREADS = WARPS * 32,
    STAGE = 4096,                       /* bytes of a piece, of both halves' pieces */
    PACKS = 2,                          /* 16-byte words of a normed row that a thread holds */
    RESERVED = 2048                     /* bytes of shared memory for the block itself,
                                           mbarriers and sums */
};

struct job {
    void        *out, *pre;
    const void  *x, *w, *b, *residual;
    int64_t      n_out, out_ld;
    int          n_in, items;           /* items: columns, or pairs of them */
    float        alpha;
    enum op_act  act;
    bool         ahead;                 /* weights may be read before earlier work is done */
    const void    *gain, *shift;        /* of the norm */
    const int32_t *rows;
    float          eps;
    bool           rms;
};

/* The state of a ring, kept by the warp's first lane: the next piece to load. */
struct ring {
    const unsigned char *from;
    uint64_t *mbar;
    uint32_t  to;
    int       piece, left;              /* piece within the row; pieces left of all */
};

/* Pieces of a ring: more for halves, whose copies are shorter, if x leaves space for them. */
static __host__ __device__ constexpr int stages_of(int halves, int rows)
{
    return halves == 2 && rows == 1 ? 3 : 2;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* Copy `bytes` to shared memory; they count towards the mbarrier's phase. */
__device__ __forceinline__ void fetch(uint32_t to, const void *from, int bytes, uint64_t *mbar)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(cuda_shared_addr(mbar)) : "memory");
}

/* Wait until all earlier work is complete and visible. */
__device__ __forceinline__ void wait_for_all(void)
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

/* The next piece of the warp's columns, of each half, into a stage. */
template <int HALVES>
__device__ __forceinline__ void ask(const struct job &j, struct ring &r, int stage, int row)
{
    constexpr int PIECE = STAGE / HALVES;
    int bytes = min(PIECE, row - r.piece * PIECE);
    const unsigned char *from = r.from + r.piece * PIECE;

    if (r.left == 0)
        return;
    mbarrier_expect_tx(r.mbar + stage, bytes * HALVES);
#pragma unroll
    for (int k = 0; k < HALVES; k++)
        fetch(r.to + stage * STAGE + k * PIECE, from + (int64_t)k * j.items * row, bytes,
              r.mbar + stage);
    if ((r.piece + 1) * PIECE < row) {
        r.piece++;
    } else {
        r.piece = 0;
        r.from += (int64_t)WARPS * row;
    }
    r.left--;
}

/* Sums of 16 bytes of the weights' rows, which are at `w`, with x's. */
template <typename T, int R, int HALVES>
__device__ __forceinline__ void add_pack(float (&sum)[HALVES][R], const unsigned char *w,
                                         const unsigned char *x, int row)
{
    row_pack<T> in[R];

#pragma unroll
    for (int r = 0; r < R; r++)
        in[r].raw = *(const uint4 *)(x + r * row);
#pragma unroll
    for (int k = 0; k < HALVES; k++) {
        row_pack<T> held;

        held.raw = *(const uint4 *)(w + k * (STAGE / HALVES));
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int e = 0; e < CUDA_PACK<T>; e++)
                sum[k][r] = fmaf(held.at(e), in[r].at(e), sum[k][r]);
    }
}

/* Add a piece: the rest of the row, at most a whole piece. */
template <typename T, int R, int HALVES>
__device__ __forceinline__ void add_piece(float (&sum)[HALVES][R], const unsigned char *w,
                                          const unsigned char *x, int row, int left)
{
    constexpr int PIECE = STAGE / HALVES;
    int c = (int)threadIdx.x % 32 * 16;

    if (left >= PIECE) {
#pragma unroll
        for (int i = 0; i < PIECE; i += 512)
            add_pack<T, R, HALVES>(sum, w + i + c, x + i + c, row);
    } else {
        for (; c < left; c += 512)
            add_pack<T, R, HALVES>(sum, w + c, x + c, row);
    }
}

/* Row r of the block's x, after its norm. */
template <typename T>
__device__ __forceinline__ void norm_row(const struct job &j, unsigned char *to, int r,
                                         const uint4 (&gain)[PACKS])
{
    constexpr int N = CUDA_PACK<T>;
    const T *x = (const T *)j.x + (j.rows ? j.rows[r] : r) * (int64_t)j.n_in;
    float mean = 0, sq = 0, inv = 1.0f / (float)j.n_in;
    row_pack<T> in[PACKS];

#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = (p * THREADS + (int)threadIdx.x) * N;

        in[p] = c < j.n_in ? row_load(x, c) : row_zero<T>();
    }
    if (!j.rms) {
#pragma unroll
        for (int p = 0; p < PACKS; p++)
#pragma unroll
            for (int e = 0; e < N; e++)
                mean += in[p].at(e);
        mean = cuda_block_sum(mean) * inv;
    }
#pragma unroll
    for (int p = 0; p < PACKS; p++)
#pragma unroll
        for (int e = 0; e < N; e++)
            if ((p * THREADS + (int)threadIdx.x) * N < j.n_in)
                sq = fmaf(in[p].at(e) - mean, in[p].at(e) - mean, sq);
    sq = 1.0f / sqrtf(cuda_block_sum(sq) * inv + j.eps);
#pragma unroll
    for (int p = 0; p < PACKS; p++) {
        int c = (p * THREADS + (int)threadIdx.x) * N;
        row_pack<T> w, b;
        float v[N];

        if (c >= j.n_in)
            continue;
        w.raw = gain[p];
        b = j.shift ? row_load((const T *)j.shift, c) : row_zero<T>();
#pragma unroll
        for (int e = 0; e < N; e++)
            v[e] = (in[p].at(e) - mean) * sq * w.at(e) + b.at(e);
        row_store((T *)to, c, v);
    }
}

/* Load x to shared memory, once it is ready; the gains before. */
template <typename T, int R, bool NORM>
__device__ __forceinline__ void take_x(const struct job &j, unsigned char *to, int row)
{
    if constexpr (NORM) {
        uint4 gain[PACKS];

        if (!j.ahead)
            wait_for_all();
#pragma unroll
        for (int p = 0; p < PACKS; p++) {
            int c = p * THREADS + (int)threadIdx.x;
            bool in = c * CUDA_PACK<T> < j.n_in;

            gain[p] = in ? ((const uint4 *)j.gain)[c] : make_uint4(0, 0, 0, 0);
        }
        wait_for_all();
#pragma unroll 1
        for (int r = 0; r < R; r++)
            norm_row<T>(j, to + r * row, r, gain);
    } else {
        wait_for_all();
        for (int c = (int)threadIdx.x * 16; c < R * row; c += THREADS * 16)
            *(uint4 *)(to + c) = *(const uint4 *)((const unsigned char *)j.x + c);
    }
    __syncthreads();
}

__device__ __forceinline__ float act_any(enum op_act act, float x)
{
    CUDA_OP_ACT(act, return act_value<A>(x));
    return x;
}

/* Output column o of the lane's row, from its sums. */
template <typename T, typename O, int HALVES>
__device__ __forceinline__ void put(const struct job &j, int o, const float (&v)[HALVES],
                                    float bias, float add)
{
    int r = (int)threadIdx.x % 32;
    O *to = (O *)j.out + r * j.out_ld + o;

    if constexpr (HALVES == 2) {
        float g = cuda_to_f32(cuda_from_f32<T>(v[0] * j.alpha)),
              u = cuda_to_f32(cuda_from_f32<T>(v[1] * j.alpha));

        *to = cuda_from_f32<O>(u * act_any(j.act, g));
    } else {
        float y = v[0] * j.alpha + bias;

        if (j.pre)
            ((T *)j.pre)[r * j.n_out + o] = cuda_from_f32<T>(y);
        *to = cuda_from_f32<O>(act_any(j.act, y) + add);
    }
}

#endif

template <typename T, typename O, int R, int HALVES, bool NORM>
static __global__ void __launch_bounds__(THREADS, R == 1 ? 2 : 1) ring_kernel(struct job j)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
    constexpr int PIECE = STAGE / HALVES, STAGES = stages_of(HALVES, R);
    extern __shared__ __align__(128) unsigned char pool[];
    __shared__ uint64_t gates[WARPS][STAGES];
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    int first = (int)((int64_t)j.items * blockIdx.x / gridDim.x) + warp;
    int end = (int)((int64_t)j.items * (blockIdx.x + 1) / gridDim.x);
    int row = j.n_in * (int)sizeof(T), stage = 0, time = 0;
    unsigned char *mine = pool + warp * STAGES * STAGE, *x = pool + WARPS * STAGES * STAGE;
    struct ring r = {(const unsigned char *)j.w + (int64_t)first * row, gates[warp],
                     cuda_shared_addr(mine), 0, 0};

    if (first < end)
        r.left = (end - first + WARPS - 1) / WARPS * ((row + PIECE - 1) / PIECE);
    asm volatile("griddepcontrol.launch_dependents;");
    if (!j.ahead)
        wait_for_all();
    if (lane == 0) {
#pragma unroll
        for (int s = 0; s < STAGES; s++)
            mbarrier_init(r.mbar + s, 1);
        mbarrier_fence_init();
#pragma unroll
        for (int s = 0; s < STAGES; s++)
            ask<HALVES>(j, r, s, row);
    }
    __syncwarp();
    take_x<T, R, NORM>(j, x, row);
    for (int o = first; o < end; o += WARPS) {
        bool last = lane < R;           /* of the lanes: one a row */
        float sum[HALVES][R] = {}, v[HALVES];
        float bias = last && j.b ? cuda_to_f32(((const T *)j.b)[o]) : 0.0f;
        float add = last && j.residual ?
                        cuda_to_f32(((const T *)j.residual)[lane * j.n_out + o]) : 0.0f;

        for (int c = 0; c < row; c += PIECE) {
            mbarrier_wait(r.mbar + stage, time);
            add_piece<T, R, HALVES>(sum, mine + stage * STAGE, x + c, row, row - c);
            __syncwarp();
            if (lane == 0)
                ask<HALVES>(j, r, stage, row);
            if (++stage == STAGES) {
                stage = 0;
                time++;
            }
        }
#pragma unroll
        for (int k = 0; k < HALVES; k++)
#pragma unroll
            for (int i = 0; i < R; i++) {
                float all = cuda_warp_sum(sum[k][i]);

                v[k] = lane == i || i == 0 ? all : v[k];
            }
        if (last)
            put<T, O, HALVES>(j, o, v, bias, add);
    }
#endif
}

/* Request all of a multiprocessor's memory as shared memory, so that small kernels fit beside
 * it. */
template <typename K> static bool shares(struct device *dev, const char *op, K kernel, size_t bytes)
{
    return cuda_ok(dev, op, cuda_allow_shared(kernel, bytes)) &&
           cuda_ok(dev, op, cudaFuncSetAttribute(kernel,
                                                 cudaFuncAttributePreferredSharedMemoryCarveout,
                                                 cudaSharedmemCarveoutMaxShared));
}

template <typename T, typename O, int R, int HALVES, bool NORM>
static bool launch(struct device *dev, const struct gemv *g, const struct job &j)
{
    size_t bytes = (size_t)(WARPS * stages_of(HALVES, R) * STAGE);

    bytes += (size_t)R * (size_t)g->n_in * sizeof(T);

    if (bytes + RESERVED > cuda_of(dev)->shared_most)
        return false;
    if (shares(dev, g->op, ring_kernel<T, O, R, HALVES, NORM>, bytes)) {
        cuda_pdl_launch(dev, true, ring_kernel<T, O, R, HALVES, NORM>,
                        (unsigned)cuda_of(dev)->sms, THREADS, bytes, j);
        cuda_launched(dev, g->op);
    }
    return true;
}

template <typename T, int R>
static bool by_kind(struct device *dev, const struct gemv *g, const struct job &j)
{
    if (g->gated)
        return g->norm ? launch<T, T, R, 2, true>(dev, g, j) : launch<T, T, R, 2, false>(dev, g, j);
    if (g->wide)
        return !g->norm && launch<T, float, R, 1, false>(dev, g, j);
    return g->norm ? launch<T, T, R, 1, true>(dev, g, j) : launch<T, T, R, 1, false>(dev, g, j);
}

template <typename T>
static bool by_rows(struct device *dev, const struct gemv *g, const struct job &j)
{
    switch (g->n) {
    case 1: return by_kind<T, 1>(dev, g, j);
    case 2: return by_kind<T, 2>(dev, g, j);
    case 3: return by_kind<T, 3>(dev, g, j);
    case 4: return by_kind<T, 4>(dev, g, j);
    default: return false;
    }
}

/* Whether a block can hold rows of the norm. */
static bool holds(const struct gemv *g)
{
    const struct op_rownorm *n = g->norm;

    return !n || (g->n_in <= PACKS * THREADS * 8 && cuda_aligned(n->norm.w, 16) &&
                  cuda_aligned(n->norm.b, 16));
}

bool gemv_ring(struct device *dev, const struct gemv *g)
{
    struct job j = {};

    if (!cuda_of(dev)->hopper || dev->act == CKPT_F32 || g->n_in > INT32_MAX / 16 ||
        g->n_out > INT32_MAX / 2 || !holds(g))
        return false;
    j.out = g->out;
    j.pre = g->pre;
    j.x = g->norm ? g->norm->x : g->x;
    j.w = g->w;
    j.b = g->b;
    j.residual = g->residual;
    j.n_out = g->n_out;
    j.out_ld = g->out_ld;
    j.n_in = (int)g->n_in;
    j.items = (int)(g->gated ? g->n_out / 2 : g->n_out);
    j.alpha = g->alpha;
    j.act = g->act;
    j.ahead = cuda_graph_capturing(dev);
    if (g->norm) {
        j.gain = g->norm->norm.w;
        j.shift = g->norm->norm.b;
        j.rows = g->norm->rows;
        j.eps = g->norm->norm.eps;
        j.rms = g->norm->norm.kind == OP_NORM_RMS;
    }
    return dev->act == CKPT_BF16 ? by_rows<__nv_bfloat16>(dev, g, j) : by_rows<__half>(dev, g, j);
}
