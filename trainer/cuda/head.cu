/*
 * head - the output projection and cross-entropy, a chunk of rows at a time.
 *
 * A chunk's logits lie in the workspace in the device's type (f32 where no gradient is wanted),
 * rows padded to 16 bytes.  A cluster of blocks takes a row of them into registers, finds its
 * maximum and sum, and writes the gradient in its place: one read, one write.  Rows too long for
 * that, and chips without clusters, read twice.
 *
 * What is written is softmax - onehot, in f16 times 2^14 so that small probabilities stay normal
 * numbers; scale and mul are factors of the two products behind it.
 */
#include "trainer/cuda/matmul.h"

#include <cooperative_groups.h>

#include "trainer/cuda/gemv.h"

enum {
    CLUSTER_THREADS = 256,      /* at most */
    CLUSTER_MOST    = 8,        /* blocks of a row */
    PACKS           = 16,       /* 16-byte words a thread holds */
    ROW_THREADS     = 1024,
    CHUNK_STEP      = 128,      /* rows of a chunk are a multiple */
    TRIAL_BYTES     = 64 << 20
};

#define TRAIN_BYTES ((uint64_t)2 << 30)
#define OTHER_BYTES ((uint64_t)512 << 20)
#define LOG2_E      1.4426950408889634f

/* Elements seen so far: sum of exp(x - max). */
struct soft { float max, sum; };

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

/* Of all threads of the block, in every thread. */
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
        x[j] = to_f32(z.at[j]) * mul;
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

struct loss {
    float         *nll;
    const int32_t *targets;
    int64_t        ld;
    int            V;
    float          mul, factor;         /* of what is written */
};

template <typename T, int N>
__device__ __forceinline__ cuda_pack<T, N> slope(const cuda_pack<T, N> &z, int col,
                                                 int target, const struct soft &a, float by,
                                                 const struct loss &l)
{
    cuda_pack<T, N> d;

#pragma unroll
    for (int j = 0; j < N; j++) {
        float p = exp2f((to_f32(z.at[j]) * l.mul - a.max) * LOG2_E) * by;

        d.at[j] = from_f32<T>(col + j == target ? p - l.factor : p);
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

/* What is in x is not known any more to the compiler, which would keep it as f32 too. */
__device__ __forceinline__ void forget(uint4 *x)
{
    asm volatile("" : "+r"(x->x), "+r"(x->y), "+r"(x->z), "+r"(x->w));
}

/* A row by blocks [row * C, row * C + C), which are a cluster. */
template <typename T>
static __global__ void __launch_bounds__(CLUSTER_THREADS, 2) cluster_kernel(T *z, struct loss l)
{
#if __CUDA_ARCH__ >= 900
    constexpr int N = 16 / (int)sizeof(T);
    namespace cg = cooperative_groups;
    __shared__ struct soft warps[32], mine;
    cg::cluster_group cluster = cg::this_cluster();
    int C = (int)cluster.num_blocks(), rank = (int)cluster.block_rank();
    int target, step = C * (int)blockDim.x * N, first;
    int64_t row = blockIdx.x / (unsigned)C;
    uint4 held[PACKS];
    struct soft a = {-INFINITY, 0};
    float wanted = 0, by;

    target = l.targets[row];
    z += row * l.ld;
    first = (rank * (int)blockDim.x + (int)threadIdx.x) * N;
    if (rank == 0 && threadIdx.x == 0)
        wanted = to_f32(z[target]) * l.mul;
#pragma unroll
    for (int i = 0, col = first; i < PACKS; i++, col += step)
        if (col < l.V)
            held[i] = *(const uint4 *)(z + col);
    asm volatile("" : "+r"(first), "+r"(step));
#pragma unroll
    for (int i = 0, col = first; i < PACKS; i++, col += step) {
        forget(&held[i]);
        if (col < l.V)
            see<T, N>(&a, pack<T, N>(held[i]), col, l.V, l.mul);
    }
    a = join_block(a, warps);
    if (threadIdx.x == 0)
        mine = a;
    cluster.sync();
    a = *cluster.map_shared_rank(&mine, 0);
    for (int r = 1; r < C; r++)
        a = join(a, *cluster.map_shared_rank(&mine, r));
    if (rank == 0 && threadIdx.x == 0)
        l.nll[row] = logf(a.sum) + (a.max - wanted);
    by = l.factor / a.sum;
    asm volatile("" : "+l"(z), "+r"(first), "+r"(step));        /* nor addresses */
#pragma unroll
    for (int i = 0, col = first; i < PACKS; i++, col += step) {
        forget(&held[i]);
        if (col < l.V)
            *(cuda_pack<T, N> *)(z + col) = slope<T, N>(pack<T, N>(held[i]), col, target, a, by, l);
    }
    cluster.sync();                     /* nobody leaves while `mine` is read */
#endif
}

/* A row by one block; written only where there is a factor. */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS) row_kernel(T *z, struct loss l)
{
    constexpr int N = 16 / (int)sizeof(T);
    __shared__ struct soft warps[32];
    int64_t row = blockIdx.x;
    int target = l.targets[row];
    struct soft a = {-INFINITY, 0};
    float wanted, by;

    z += row * l.ld;
    wanted = to_f32(z[target]) * l.mul;
#pragma unroll 4
    for (int col = (int)threadIdx.x * N; col < l.V; col += ROW_THREADS * N)
        see<T, N>(&a, *(const cuda_pack<T, N> *)(z + col), col, l.V, l.mul);
    a = join_block(a, warps);           /* and all have read `wanted` */
    if (threadIdx.x == 0)
        l.nll[row] = logf(a.sum) + (a.max - wanted);
    if (l.factor == 0)
        return;
    by = l.factor / a.sum;
#pragma unroll 4
    for (int col = (int)threadIdx.x * N; col < l.V; col += ROW_THREADS * N) {
        cuda_pack<T, N> *at = (cuda_pack<T, N> *)(z + col);

        *at = slope<T, N>(*at, col, target, a, by, l);
    }
}

static bool has_clusters(const struct device *dev)
{
    int has = 0;

    return cudaDeviceGetAttribute(&has, cudaDevAttrClusterLaunch,
                                  ((const struct cuda_device *)dev)->index) == cudaSuccess && has;
}

template <typename T> static bool by_clusters(struct device *dev, T *z, int64_t n, struct loss l)
{
    int64_t packs = cuda_blocks(l.V, 16 / (int64_t)sizeof(T)), C = 1;
    cudaLaunchAttribute attr = {};
    cudaLaunchConfig_t to = {};

    while (C < CLUSTER_MOST && C * CLUSTER_THREADS * PACKS < packs)
        C *= 2;
    if (C * CLUSTER_THREADS * PACKS < packs || !has_clusters(dev))
        return false;
    attr.id = cudaLaunchAttributeClusterDimension;
    attr.val.clusterDim.x = (unsigned)C;
    attr.val.clusterDim.y = attr.val.clusterDim.z = 1;
    to.gridDim = dim3((unsigned)(n * C));
    to.blockDim = dim3((unsigned)(cuda_blocks(packs, C * PACKS * 32) * 32));
    to.stream = cuda_of(dev)->stream;
    to.attrs = &attr;
    to.numAttrs = 1;
    cuda_ok(dev, "head_loss", cudaLaunchKernelEx(&to, cluster_kernel<T>, z, l));
    return true;
}

template <typename T> static void soften(struct device *dev, T *z, int64_t n, struct loss l)
{
    if (dev->err.code || (l.factor != 0 && by_clusters(dev, z, n, l)))
        return;
    row_kernel<T><<<(unsigned)n, ROW_THREADS, 0, cuda_of(dev)->stream>>>(z, l);
    cuda_launched(dev, "head_loss");
}

static int64_t padded(int64_t V) { return (V + 7) / 8 * 8; }

/* Rows of a chunk at most; a multiple of CHUNK_STEP. */
static int64_t most_rows(int64_t V, uint64_t size, bool train)
{
    int64_t rows = (int64_t)((train ? TRAIN_BYTES : OTHER_BYTES) / ((uint64_t)padded(V) * size));

    return rows < CHUNK_STEP ? (int64_t)CHUNK_STEP : rows / CHUNK_STEP * CHUNK_STEP;
}

static int64_t stepped(int64_t n) { return (n + CHUNK_STEP - 1) / CHUNK_STEP * CHUNK_STEP; }

/* n rows in chunks of one size. */
static int64_t chunk_rows(int64_t n, int64_t V, uint64_t size, bool train)
{
    return stepped(cuda_blocks(n, cuda_blocks(n, most_rows(V, size, train))));
}

static uint64_t chunk_bytes(int64_t rows, int64_t V, uint64_t size)
{
    return cuda_part((uint64_t)rows * (uint64_t)padded(V) * size);
}

static uint64_t most_bytes(int64_t n, int64_t V, uint64_t size, bool train)
{
    int64_t rows = most_rows(V, size, train);

    return chunk_bytes(stepped(n) < rows ? stepped(n) : rows, V, size);
}

uint64_t cuda_head_work(const struct device *dev, const struct op_limits *l)
{
    uint64_t other = most_bytes(l->n_rows, l->vocab, 4, false), train = 0;

    if (l->train)
        train = TRIAL_BYTES + most_bytes(l->n_rows, l->vocab, dev->act == CKPT_F32 ? 4 : 2, true);
    return MATMUL_WORK + (train > other ? train : other);
}

/* What every product of the head has in common: rows [first, first + n) of a. */
static struct matmul_args product(const struct device *dev, uint64_t busy)
{
    struct matmul_args p = {};

    p.op = "head_loss";
    p.in = p.out = dev->act;
    p.alpha = 1.0f;
    p.busy = busy;
    return p;
}

static void logits_of(struct device *dev, const struct op_head *a, void *z, enum ckpt_dtype type,
                      const void *x, int64_t n, uint64_t busy)
{
    struct matmul_args p = product(dev, busy);

    p.m = n;
    p.n = a->vocab;
    p.k = p.lda = p.ldb = a->dim;
    p.a = x;
    p.b = a->w;
    p.b_t = true;
    p.d = z;
    p.ldd = padded(a->vocab);
    p.out = type;
    matmul(dev, &p);
}

/* dx and dW from what stands in z. */
static void back(struct device *dev, const struct op_head *a, const void *z, const void *x,
                 void *dx, int64_t n, float by, bool add, uint64_t busy)
{
    struct matmul_args p = product(dev, busy);

    p.a = z;
    p.lda = padded(a->vocab);
    p.alpha = by;
    p.n = p.ldb = p.ldd = a->dim;
    if (a->dw) {
        p.m = a->vocab;
        p.k = n;
        p.a_t = true;
        p.b = x;
        p.d = a->dw;
        p.out = CKPT_F32;
        p.beta = add ? 1.0f : 0.0f;
        matmul(dev, &p);
    }
    p.m = n;
    p.k = a->vocab;
    p.a_t = false;
    p.b = a->w;
    p.d = dx;
    p.out = dev->act;
    p.beta = 0;
    matmul(dev, &p);
}

void cuda_head_loss(struct device *dev, const struct op_head *a)
{
    enum ckpt_dtype type = a->dx ? dev->act : CKPT_F32;
    uint64_t size = type == CKPT_F32 ? 4 : 2, item = dev->act == CKPT_F32 ? 4 : 2, bytes;
    float factor = !a->dx ? 0.0f : type == CKPT_F16 ? 16384.0f : 1.0f;
    int64_t rows;
    void *z;

    if (a->n == 0 && a->fresh && a->dw)
        dev->ops->zero(dev, a->dw, (size_t)(a->vocab * a->dim) * sizeof(float));
    if (dev->err.code || a->n == 0)
        return;
    rows = chunk_rows(a->n, a->vocab, size, a->dx != NULL);
    bytes = chunk_bytes(rows, a->vocab, size);
    z = matmul_work(dev, "head_loss", bytes);
    if (!z)
        return;
    for (int64_t first = 0; first < a->n; first += rows) {
        int64_t n = a->n - first < rows ? a->n - first : rows;
        uint64_t at = (uint64_t)(first * a->dim) * item;
        const void *x = (const unsigned char *)a->x + at;
        struct loss l = {a->nll + first, a->targets + first, padded(a->vocab), (int)a->vocab,
                         a->mul, factor};

        logits_of(dev, a, z, type, x, n, bytes);
        if (type == CKPT_F32)
            soften(dev, (float *)z, n, l);
        else
            CUDA_ACT(dev, soften(dev, (T *)z, n, l));
        if (a->dx)
            back(dev, a, z, x, (unsigned char *)a->dx + at, n, a->scale * a->mul / factor,
                 first > 0 || !a->fresh, bytes);
    }
}

void cuda_head_logits(struct device *dev, float *logits, const void *x, const void *w, int64_t n,
                      int64_t dim, int64_t vocab, float mul)
{
    struct matmul_args p = product(dev, 0);
    struct gemv g = {};

    if (dev->err.code || n == 0)
        return;
    g.op = "head_logits";
    g.out = logits;
    g.x = x;
    g.w = w;
    g.n = n;
    g.n_in = dim;
    g.n_out = g.out_ld = vocab;
    g.alpha = mul;
    g.wide = true;
    if (gemv(dev, &g))
        return;
    p.op = "head_logits";
    p.m = n;
    p.n = p.ldd = vocab;
    p.k = p.lda = p.ldb = dim;
    p.a = x;
    p.b = w;
    p.b_t = true;
    p.d = logits;
    p.out = CKPT_F32;
    p.alpha = mul;
    matmul(dev, &p);
}
