/*
 * head_rows - see head.h.
 *
 * A cluster of blocks goes from row to row: a row's parts are loaded to shared memory ahead of
 * time, their maxima and sums are sent to every block of the cluster, and the gradient replaces
 * the row: one read, one write.  The next row is summed in between, so that no block waits for
 * the others.  Rows that are too long, and chips other than Hopper, read twice.
 *
 * Source: PTX ISA 8.5, sections 9.7.8.8 (st.async) and 9.7.13.15 (mbarrier).
 */
#include "trainer/cuda/hopper/mbarrier.cuh"
#include "trainer/cuda/head.h"

#include <cooperative_groups.h>
#include <cuda_pipeline_primitives.h>

#include <type_traits>

enum {
    CLUSTER_MOST    = 8,        /* blocks of a row */
    CLUSTER_THREADS = 512,
    PACKS           = 8,        /* most 16-byte words of a row per thread */
    STAGES          = 3,        /* rows: two being computed, one being loaded */
    BOXES           = 4,
    ROW_THREADS     = 1024
};

#define LOG2_E      1.4426950408889634f
#define BESIDE      2048                /* most bytes of shared memory besides the rows */

/* Elements seen so far: sum of exp(x - max). */
struct __align__(8) soft { float max, sum; };

__device__ __forceinline__ float part_of(float max, float of)
{
    return max == of ? 1.0f : exp2f((max - of) * LOG2_E);
}

__device__ __forceinline__ struct soft join(struct soft a, struct soft b)
{
    float max = fmaxf(a.max, b.max);

    return {max, a.sum * part_of(a.max, max) + b.sum * part_of(b.max, max)};
}

__device__ __forceinline__ struct soft join_warp(struct soft a)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        struct soft b = {__shfl_xor_sync(0xffffffffu, a.max, i),
                         __shfl_xor_sync(0xffffffffu, a.sum, i)};

        a = join(a, b);
    }
    return a;
}

/* Over all threads of the block, in every thread. */
__device__ __forceinline__ struct soft join_block(struct soft a, struct soft *part)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, n = (int)blockDim.x / 32;

    a = join_warp(a);
    if (lane == 0)
        part[warp] = a;
    __syncthreads();
    a = part[0];
    for (int i = 1; i < n; i++)
        a = join(a, part[i]);
    return a;
}

/* One more pack; columns from V on count as nothing. */
template <typename T, int N>
__device__ __forceinline__ void see(struct soft *a, const cuda_pack<T, N> &z, int col, int V,
                                    float mul)
{
    float x[N], max = a->max;

#pragma unroll
    for (int j = 0; j < N; j++)
        x[j] = cuda_to_f32(z.at[j]) * mul;
    if (col + N > V)
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = col + j < V ? x[j] : -INFINITY;
#pragma unroll
    for (int j = 0; j < N; j++)
        max = fmaxf(max, x[j]);
    a->sum *= part_of(a->max, max);
    a->max = max;
#pragma unroll
    for (int j = 0; j < N; j++)
        a->sum += exp2f((x[j] - max) * LOG2_E);
}

template <typename T, int N>
__device__ __forceinline__ cuda_pack<T, N> slope(const cuda_pack<T, N> &z, int col,
                                                 int target, const struct soft &a, float by,
                                                 const struct head_rows &l)
{
    float less = l.factor * l.smoothing / (float)l.V;

    cuda_pack<T, N> d;

#pragma unroll
    for (int j = 0; j < N; j++) {
        float p = exp2f((cuda_to_f32(z.at[j]) * l.mul - a.max) * LOG2_E) * by - less;

        d.at[j] = cuda_from_f32<T>(col + j == target ? p - l.factor * (1 - l.smoothing) : p);
    }
    return d;
}

template <typename T, int N> __device__ __forceinline__ cuda_pack<T, N> pack(const uint4 &x)
{
    cuda_pack<T, N> to;

    static_assert(sizeof to == sizeof x, "a pack is 16 bytes");
    memcpy(&to, &x, sizeof to);
    return to;
}

/* Make the compiler forget the values in x, which it would keep as f32 as well. */
__device__ __forceinline__ void forget(uint4 *x)
{
    asm volatile("" : "+r"(x->x), "+r"(x->y), "+r"(x->z), "+r"(x->w));
}

/* A block's part of the rows: packs [0, mine) of them from `at` on, of which the last has `left`
 * columns that count. */
struct part {
    int begin, mine, left;
};

/* Columns of the row's last pack from `left` on become -inf: the factor of the logits is above
 * 0. */
template <typename T> __device__ __forceinline__ void cut(uint4 *at, const struct part &of)
{
    int last = of.mine - 1;

    if (of.left < 16 / (int)sizeof(T) && last % CLUSTER_THREADS == (int)threadIdx.x)
        for (int j = of.left; j < 16 / (int)sizeof(T); j++)
            ((T *)(at + last))[j] = cuda_from_f32<T>(-INFINITY);
}

/* Load the packs of row i, if there is one, to `to`: each thread its own. */
template <typename T>
__device__ __forceinline__ void ask(uint4 *to, const T *z, const struct head_rows &l, int i, int n,
                                    const struct part &of)
{
    const uint4 *from = (const uint4 *)(z + (int64_t)i * l.ld) + of.begin;

    if (i < n)
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int p = (int)threadIdx.x + k * CLUSTER_THREADS;

            if (p < of.mine)
                __pipeline_memcpy_async(to + p, from + p, 16);
        }
    __pipeline_commit();
}

/* 2^x; 0 instead of a denormal number. */
__device__ __forceinline__ float power(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Maxima are in units of log 2. */
__device__ __forceinline__ float power_part(float max, float of)
{
    return max == -INFINITY ? 0.0f : power(max - of);
}

/* The larger values of two words of pairs. */
template <typename T> __device__ __forceinline__ unsigned larger(unsigned a, unsigned b)
{
    unsigned c;

    if constexpr (sizeof(T) == 4)
        c = __float_as_uint(fmaxf(__uint_as_float(a), __uint_as_float(b)));
    else if constexpr (std::is_same<T, __half>::value)
        asm("max.f16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    else
        asm("max.bf16x2 %0, %1, %2;" : "=r"(c) : "r"(a), "r"(b));
    return c;
}

template <typename T> __device__ __forceinline__ float largest(unsigned a)
{
    T x[4 / sizeof(T)];

    memcpy(x, &a, sizeof x);
    return sizeof(T) == 4 ? cuda_to_f32(x[0])
                          : fmaxf(cuda_to_f32(x[0]), cuda_to_f32(x[1 % (4 / sizeof(T))]));
}

/* Of the warp's packs. */
template <typename T>
__device__ __forceinline__ struct soft sum_packs(const uint4 *at, const struct part &of, float by)
{
    constexpr int N = 16 / (int)sizeof(T);
    const float none = -INFINITY;
    float max = none, sum = 0;
    unsigned most;
    uint4 x[PACKS];

#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int p = (int)threadIdx.x + k * CLUSTER_THREADS;

        if (p >= of.mine)
            continue;
        x[k] = at[p];
        most = larger<T>(larger<T>(x[k].x, x[k].y), larger<T>(x[k].z, x[k].w));
        max = fmaxf(max, largest<T>(most));
    }
    max = cuda_warp_max(max) * by;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        forget(&x[k]);
        if ((int)threadIdx.x + k * CLUSTER_THREADS < of.mine)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum += power(fmaf(cuda_to_f32(pack<T, N>(x[k]).at[j]), by, -max));
    }
    return {max, cuda_warp_sum(sum)};
}

/* The same for the block's warps.  All threads call it; only the first warp gets the result. */
__device__ __forceinline__ struct soft join_warps(struct soft a, struct soft *part)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    float max;

    if (lane == 0)
        part[warp] = a;
    __syncthreads();
    if (warp > 0)
        return a;
    a = {-INFINITY, 0};
    if (lane < CLUSTER_THREADS / 32)
        a = part[lane];
    max = cuda_warp_max(a.max);
    return {max, cuda_warp_sum(a.sum * power_part(a.max, max))};
}

/* What `box` has from C blocks, in every thread. */
__device__ __forceinline__ struct soft join_blocks(const struct soft *box, int C)
{
    int from = (int)threadIdx.x % CLUSTER_MOST;
    struct soft a = {-INFINITY, 0};
    float max;

    if (from < C)
        a = box[from];
    max = cuda_warp_max<CLUSTER_MOST>(a.max);
    return {max, cuda_warp_sum<CLUSTER_MOST>(a.sum * power_part(a.max, max))};
}

/* Write the gradient of row i in its place, from its sums; the block that holds the target
 * writes the loss. */
template <typename T>
__device__ __forceinline__ void put_slopes(T *z, const struct head_rows &l, int i, const uint4 *at,
                                           const struct part &of, float by, int target,
                                           const struct soft &a)
{
    constexpr int N = 16 / (int)sizeof(T);
    uint4 *row = (uint4 *)(z + (int64_t)i * l.ld) + of.begin;
    float times = l.factor / a.sum, less = a.max - log2f(times);

#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int p = (int)threadIdx.x + k * CLUSTER_THREADS, own = target - (of.begin + p) * N;
        cuda_pack<T, N> x;
        float d[N];

        if (p >= of.mine)
            continue;
        x = pack<T, N>(at[p]);
#pragma unroll
        for (int j = 0; j < N; j++)
            d[j] = sizeof(T) == 4 ? power(fmaf(cuda_to_f32(x.at[j]), by, -a.max)) * times
                                  : power(fmaf(cuda_to_f32(x.at[j]), by, -less));
        if ((unsigned)own < (unsigned)N) {
            float wanted = 0;

#pragma unroll
            for (int j = 0; j < N; j++) {
                wanted = j == own ? cuda_to_f32(x.at[j]) * by : wanted;
                d[j] -= j == own ? l.factor : 0.0f;
            }
            l.nll[i] = (log2f(a.sum) + (a.max - wanted)) / LOG2_E;
        }
#pragma unroll
        for (int j = 0; j < N; j++)
            x.at[j] = cuda_from_f32<T>(d[j]);
        *(cuda_pack<T, N> *)(row + p) = x;
    }
}

/* -- exchange within a cluster ---------------------------------------------------------------- */

/* Send to `box` of block `to`; the bytes count towards the mbarrier `full` there. */
__device__ __forceinline__ void tell(const struct soft *box, const uint64_t *full, int to,
                                     const struct soft &a)
{
#if WGMMA_HERE
    asm volatile(
        "{ .reg .b32 box, full;\n"
        "mapa.shared::cluster.u32 box, %0, %2;\n"
        "mapa.shared::cluster.u32 full, %1, %2;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [box], {%3, %4}, "
        "[full]; }" ::"r"(cuda_shared_addr(box)),
        "r"(cuda_shared_addr(full)), "r"(to), "f"(a.max), "f"(a.sum)
        : "memory");
#endif
}

/* Wait for all sums of the phase with that parity; acquires for the cluster, which
 * mbarrier_wait does not. */
__device__ __forceinline__ void await(const uint64_t *full, unsigned parity)
{
#if WGMMA_HERE
    asm volatile("{ .reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again; }" ::"r"(cuda_shared_addr(full)), "r"(parity) : "memory");
#endif
}

/*
 * Rows c, c + clusters, ... by cluster c, `each` packs of a row by a block.  While a block's sums
 * of a row travel, the block sums the next row.  A box is reused four rows later, by a block that
 * has received all sums of the row two later: by then all threads have read the box.
 */
template <typename T>
static __global__ void __launch_bounds__(CLUSTER_THREADS, 1)
cluster_kernel(T *z, struct head_rows l, int n, int each)
{
#if WGMMA_HERE
    constexpr int N = 16 / (int)sizeof(T);
    namespace cg = cooperative_groups;
    extern __shared__ uint4 stage[];
    __shared__ struct soft warps[2][32], box[BOXES][CLUSTER_MOST];
    __shared__ uint64_t full[BOXES];
    cg::cluster_group cluster = cg::this_cluster();
    int C = (int)cluster.num_blocks(), rank = (int)cluster.block_rank();
    int packs = (l.V + N - 1) / N, step = (int)gridDim.x / C, i = (int)blockIdx.x / C - step;
    int target = 0, slot = 0, count = 0;        /* rows summed so far */
    struct part of = {rank * each, packs - rank * each, N};
    float by = l.mul * LOG2_E;

    if (of.mine > each)
        of.mine = each;
    else
        of.left = l.V - (packs - 1) * N;
    if (threadIdx.x == 0) {
        for (int k = 0; k < BOXES; k++)
            mbarrier_init(&full[k], 1);
        mbarrier_fence_init();
    }
    for (int k = 0; k < STAGES; k++)
        ask(stage + k * each, z, l, i + (k + 1) * step, n, of);
    cluster.sync();                     /* all blocks can receive */
    for (bool first = true; i < n; i += step, first = false) {
        int now = (count - 1) % BOXES, next = count % BOXES, then = target;
        unsigned parity = (unsigned)((count - 1) / BOXES) & 1;
        int ahead = first ? slot : slot + 1 < STAGES ? slot + 1 : 0;

        if (i + step < n) {             /* the next row */
            struct soft a;

            then = l.targets[i + step];
            if (first)
                __pipeline_wait_prior(STAGES - 1);
            else
                __pipeline_wait_prior(STAGES - 2);
            cut<T>(stage + ahead * each, of);
            a = join_warps(sum_packs<T>(stage + ahead * each, of, by), warps[count & 1]);
            if (C == 1 && threadIdx.x == 0)
                box[next][0] = a;       /* a single block has no other to send to */
            if (threadIdx.x == 0)
                mbarrier_expect_tx(&full[next], C > 1 ? C * (int)sizeof a : 0);
            if (C > 1 && (int)threadIdx.x < C)
                tell(&box[next][rank], &full[next], (int)threadIdx.x, a);
            count++;
        }
        if (!first) {
            await(&full[now], parity);
            put_slopes(z, l, i, stage + slot * each, of, by, target, join_blocks(box[now], C));
            ask(stage + slot * each, z, l, i + STAGES * step, n, of);
        }
        target = then;
        slot = ahead;
    }
    cluster.sync();                     /* a block must not exit while others send to it */
#endif
}

/* A row by one block; written only if there is a factor. */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS) row_kernel(T *z, struct head_rows l)
{
    constexpr int N = 16 / (int)sizeof(T);
    __shared__ struct soft warps[32];
    int64_t row = blockIdx.x;
    int target = l.targets[row];
    struct soft a = {-INFINITY, 0};
    float wanted, by, all, sum = 0, mean = 0;

    z += row * l.ld;
    wanted = cuda_to_f32(z[target]) * l.mul;
#pragma unroll 4
    for (int col = (int)threadIdx.x * N; col < l.V; col += ROW_THREADS * N)
        see<T, N>(&a, *(const cuda_pack<T, N> *)(z + col), col, l.V, l.mul);
    if (l.smoothing > 0) {
        for (int col = (int)threadIdx.x; col < l.V; col += ROW_THREADS)
            sum += cuda_to_f32(z[col]);
        mean = (float)(cuda_block_sum((double)sum) / l.V) * l.mul;
    }
    a = join_block(a, warps);           /* and all have read `wanted` */
    all = logf(a.sum) + a.max;
    if (threadIdx.x == 0)
        l.nll[row] = logf(a.sum) + (a.max - wanted) +
                     (l.smoothing > 0 || l.z_loss > 0
                          ? l.smoothing * (wanted - mean) + l.z_loss * all * all : 0.0f);
    if (l.factor == 0)
        return;
    by = l.factor * (1 + 2 * l.z_loss * all) / a.sum;
#pragma unroll 4
    for (int col = (int)threadIdx.x * N; col < l.V; col += ROW_THREADS * N) {
        cuda_pack<T, N> *at = (cuda_pack<T, N> *)(z + col);

        *at = slope<T, N>(*at, col, target, a, by, l);
    }
}

template <typename T>
static bool by_clusters(struct device *dev, T *z, int64_t n, const struct head_rows &l)
{
    int64_t packs = cuda_blocks(l.V, 16 / (int64_t)sizeof(T)), C = 1, each;
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t to = {};
    int clusters = 0;

    while (C < CLUSTER_MOST && C * CLUSTER_THREADS * PACKS < packs)
        C *= 2;
    each = cuda_blocks(packs, C);
    to.dynamicSmemBytes = (size_t)(STAGES * each) * sizeof(uint4);
    if (C * CLUSTER_THREADS * PACKS < packs || !cuda_of(dev)->hopper ||
        to.dynamicSmemBytes + BESIDE > cuda_of(dev)->shared_most ||
        !cuda_ok(dev, "head_loss", cuda_allow_shared(cluster_kernel<T>, to.dynamicSmemBytes)))
        return false;
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = (unsigned)C;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    to.gridDim = dim3((unsigned)C);
    to.blockDim = dim3(CLUSTER_THREADS);
    to.stream = cuda_of(dev)->stream;
    to.attrs = &attr;
    to.numAttrs = 1;
    if (!cuda_ok(dev, "head_loss",
                 cudaOccupancyMaxActiveClusters(&clusters, cluster_kernel<T>, &to)))
        return false;
    if (clusters == 0)
        return false;
    to.gridDim.x = (unsigned)(C * (n < clusters ? n : clusters));
    cuda_ok(dev, "head_loss", cudaLaunchKernelEx(&to, cluster_kernel<T>, z, l, (int)n, (int)each));
    return true;
}

template <typename T>
static void softmax_rows(struct device *dev, T *z, int64_t n, const struct head_rows &l)
{
    bool plain = l.smoothing == 0 && l.z_loss == 0;     /* what clusters compute */

    if (l.factor != 0 && plain && by_clusters(dev, z, n, l))
        return;
    row_kernel<T><<<(unsigned)n, ROW_THREADS, 0, cuda_of(dev)->stream>>>(z, l);
    cuda_launched(dev, "head_loss");
}

void head_softmax(struct device *dev, void *z, enum ckpt_dtype type, int64_t n,
                  const struct head_rows *l)
{
    if (dev->err.code)
        return;
    if (type == CKPT_F32)
        softmax_rows(dev, (float *)z, n, *l);
    else
        CUDA_ACT(dev, softmax_rows(dev, (T *)z, n, *l));
}
