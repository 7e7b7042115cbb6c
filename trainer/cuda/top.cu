/*
 * top - the largest logits of each row, and the denominator of a softmax over all of them.
 *
 * A row is cut into slices, a block each, and the results of the slices go through the same
 * kernel once more.  Value and id form one 64-bit number that orders by falling value, then
 * rising id, and is unique.  The k-th largest of the threads' maxima is a lower bound of the k
 * largest: few elements are above it, and those are sorted.  Where they are too many (values
 * that rise along a thread's elements) the bound itself is found bit by bit.
 *
 * Before that, ids that must not be chosen may get the logit -infinity in some rows.
 */
#include "trainer/cuda/cuda.h"

enum {
    THREADS = 512, WARPS = THREADS / 32,
    ROOM = 2048,                        /* elements to sort: all results of a row's slices */
    ENOUGH = 264,                       /* blocks: two on each of 132 multiprocessors */
    MOST_SLICES = 32
};

struct pick {
    const float    *z;                  /* the first pass: logits [n, width] */
    const uint64_t *from;               /* the second: [n, width] */
    uint64_t       *to;                 /* the first: [n, slices, k] */
    int            *bad;                /* [n, slices] NaNs of each slice */
    int64_t         width;
    int             n_slices, k;        /* of this launch */
    int             given;              /* slices of the first pass, in the second */
    float          *value;
    int32_t        *id;
};

__device__ __forceinline__ uint64_t ordered(float x, int64_t id)
{
    uint32_t u = __float_as_uint(x == 0.0f ? 0.0f : x);

    u = u >> 31 ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~(uint32_t)id;
}

__device__ __forceinline__ float value_of(uint64_t x)
{
    uint32_t u = (uint32_t)(x >> 32);

    return __uint_as_float(u >> 31 ? u & 0x7fffffffu : ~u);
}

__device__ __forceinline__ uint64_t element(const struct pick &p, int64_t row, int64_t i)
{
    return p.z ? ordered(p.z[row * p.width + i], i) : p.from[row * p.width + i];
}

/* Falling; n a power of two, all threads. */
__device__ void sort(uint64_t *x, int n)
{
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < n / 2; i += THREADS) {
                int lo = i / step * 2 * step + i % step, hi = lo + step;
                bool up = (lo & size) != 0;
                uint64_t a = x[lo], b = x[hi];

                if ((a < b) != up) {
                    x[lo] = b;
                    x[hi] = a;
                }
            }
        }
    __syncthreads();
}

/* The largest of all threads' values; every thread gets it. */
__device__ uint64_t largest(uint64_t x, uint64_t *shared)
{
    for (int l = 16; l > 0; l /= 2) {
        uint64_t other = __shfl_xor_sync(0xffffffffu, x, l);

        x = other > x ? other : x;
    }
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    for (int w = 0; w < WARPS; w++)
        x = shared[w] > x ? shared[w] : x;
    return x;
}

/* How many elements of [begin, end) are at least `least`; every thread gets the number. */
__device__ int count_from(const struct pick &p, int64_t row, int64_t begin, int64_t end,
                          uint64_t least, int *shared)
{
    int mine = 0;

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        mine += element(p, row, i) >= least;
    mine = __reduce_add_sync(0xffffffffu, mine);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = mine;
    __syncthreads();
    mine = 0;
    for (int w = 0; w < WARPS; w++)
        mine += shared[w];
    return mine;
}

/* In a fixed order: lanes, then warps. */
__device__ double sum_all(double x, double *shared)
{
    x = cuda_warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < WARPS; w++)
        x += shared[w];
    return x;
}

/* Put the k largest of [begin, end), and possibly more, in held, falling; most: the thread's
 * largest. */
__device__ void sort_most(const struct pick &p, int64_t row, int64_t begin, int64_t end,
                          uint64_t most, uint64_t *held)
{
    __shared__ int counts[WARPS], n;
    uint64_t least;
    int places = 1;

    held[threadIdx.x] = most;
    sort(held, THREADS);
    least = held[p.k - 1];
    if (count_from(p, row, begin, end, least, counts) > ROOM) {
        least = 0;
        for (int bit = 63; bit >= 0; bit--)     /* the k-th largest itself */
            if (count_from(p, row, begin, end, least | (uint64_t)1 << bit, counts) >= p.k)
                least |= (uint64_t)1 << bit;
    }
    if (threadIdx.x == 0)
        n = 0;
    __syncthreads();
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        uint64_t x = element(p, row, i);

        if (x >= least)
            held[atomicAdd(&n, 1)] = x;         /* sorted below, so the order does not matter */
    }
    __syncthreads();
    while (places < n)
        places *= 2;
    for (int i = n + (int)threadIdx.x; i < places; i += THREADS)
        held[i] = 0;
    sort(held, places);
}

__global__ void __launch_bounds__(THREADS) pick_kernel(const __grid_constant__ struct pick p)
{
    __shared__ uint64_t held[ROOM];
    int64_t row = blockIdx.y, each = (p.width + p.n_slices - 1) / p.n_slices;
    int64_t begin = (int64_t)blockIdx.x * each, end = min(begin + each, p.width);
    uint64_t most = 0;
    int bad = 0;

    cuda_pdl_wait();
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        uint64_t x = element(p, row, i);

        most = x > most ? x : most;
        bad |= p.z && isnan(p.z[row * p.width + i]);
    }
    if (p.k == 1)
        held[0] = largest(most, held + 1);
    else
        sort_most(p, row, begin, end, most, held);
    __syncthreads();
    if (p.z) {
        uint64_t *to = p.to + (row * p.n_slices + blockIdx.x) * p.k;

        for (int i = (int)threadIdx.x; i < p.k; i += THREADS)
            to[i] = held[i];
        bad = __syncthreads_count(bad);
        if (threadIdx.x == 0)
            p.bad[row * p.n_slices + blockIdx.x] = bad;
        return;
    }
    for (int i = 0; i < p.given; i++)
        bad |= p.bad[row * p.given + i];
    for (int i = (int)threadIdx.x; i < p.k; i += THREADS) {
        p.value[row * p.k + i] = bad ? NAN : value_of(held[i]);
        p.id[row * p.k + i] = bad ? 0 : (int32_t)~(uint32_t)held[i];
    }
}

/* A slice's part of the sum, relative to the row's largest value. */
__global__ void __launch_bounds__(THREADS)
    sum_kernel(double *part, const float *z, const float *value, int64_t width, int k,
               double temperature)
{
    __shared__ double shared[WARPS];
    int64_t row = blockIdx.y, each = (width + gridDim.x - 1) / gridDim.x;
    int64_t begin = (int64_t)blockIdx.x * each, end = min(begin + each, width);
    float max = value[row * k];
    double sum = 0;

    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS)
        sum += exp((double)(z[row * width + i] - max) / temperature);
    sum = sum_all(sum, shared);
    if (threadIdx.x == 0)
        part[row * gridDim.x + blockIdx.x] = sum;
}

__global__ void join_kernel(double *sum, const double *part, int64_t n, int n_slices)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    double all = 0;

    for (int i = 0; row < n && i < n_slices; i++)
        all += part[row * n_slices + i];
    if (row < n)
        sum[row] = all;
}

/* As many slices as possible with at least k elements each and at most ROOM results together. */
static int slices_of(int64_t n, int64_t vocab, int64_t k)
{
    int64_t some = cuda_blocks(ENOUGH, n), most = vocab / (2 * THREADS);

    most = most < ROOM / k ? most : ROOM / k;
    most = most < (int64_t)MOST_SLICES ? most : (int64_t)MOST_SLICES;
    some = some < most ? some : most;
    return some < 1 ? 1 : (int)some;
}

/* The workspace: the slices' results, then their NaNs, then their sums. */
static uint64_t kept_bytes(int64_t n, int64_t n_slices, int64_t k)
{
    return cuda_align((uint64_t)(n * n_slices * k) * sizeof(uint64_t));
}

static uint64_t slices_bytes(int64_t n, int64_t n_slices)
{
    return cuda_align((uint64_t)(n * n_slices) * sizeof(double));
}

/* A row has more than one slice only while n * slices < 2 * ENOUGH. */
uint64_t cuda_top_work(const struct device *dev, const struct op_limits *l)
{
    int64_t n = l->top_rows + 2 * ENOUGH;

    (void)dev;
    return l->top_rows ? kept_bytes(n, 1, OP_TOP_MOST) + 2 * slices_bytes(n, 1) : 0;
}

void cuda_head_top(struct device *dev, const struct op_top *a)
{
    cudaStream_t stream = cuda_of(dev)->stream;
    int n_slices = slices_of(a->n, a->vocab, a->k);
    uint64_t kept = kept_bytes(a->n, n_slices, a->k), each = slices_bytes(a->n, n_slices);
    bool early = a->n <= CUDA_FEW_ROWS;
    struct pick p = {};
    unsigned char *work;
    double *part;

    if (dev->err.code || a->n == 0)
        return;
    work = (unsigned char *)cuda_work(dev, "head_top", kept + 2 * each);
    if (!work)
        return;
    part = (double *)(void *)(work + kept + each);
    p.z = a->logits;
    p.from = p.to = (uint64_t *)(void *)work;
    p.bad = (int *)(void *)(work + kept);
    p.width = a->vocab;
    p.n_slices = p.given = n_slices;
    p.k = (int)a->k;
    p.value = a->value;
    p.id = a->id;
    cuda_pdl_launch(dev, early, pick_kernel, dim3((unsigned)n_slices, (unsigned)a->n), THREADS,
                    0, p);
    p.z = NULL;
    p.width = n_slices * a->k;
    p.n_slices = 1;
    cuda_pdl_launch(dev, early, pick_kernel, dim3(1, (unsigned)a->n), THREADS, 0, p);
    if (a->sum) {
        sum_kernel<<<dim3((unsigned)n_slices, (unsigned)a->n), THREADS, 0, stream>>>(
            part, a->logits, a->value, a->vocab, p.k, a->temperature);
        join_kernel<<<(unsigned)cuda_blocks(a->n, 128), 128, 0, stream>>>(a->sum, part, a->n,
                                                                         n_slices);
    }
    cuda_launched(dev, "head_top");
}

__global__ void forbid_kernel(const __grid_constant__ struct op_forbid a)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / a.n_ids;

    if (row < a.n && (a.rows[row / 32] >> (row % 32) & 1))
        a.logits[row * a.vocab + a.id[i % a.n_ids]] = -INFINITY;
}

void cuda_head_forbid(struct device *dev, const struct op_forbid *a)
{
    cudaStream_t stream = cuda_of(dev)->stream;

    if (dev->err.code || a->n * a->n_ids == 0)
        return;
    forbid_kernel<<<(unsigned)cuda_blocks(a->n * a->n_ids, 128), 128, 0, stream>>>(*a);
    cuda_launched(dev, "head_forbid");
}
