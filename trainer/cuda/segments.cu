/*
 * segments - see segments.h.
 *
 * The sort is stable (CUB's radix sort), so the order of every sum is that of the rows.  A
 * block takes CHUNK places of the sorted order and a tile of columns.  Runs inside a chunk are
 * added to the table at once; of a run that crosses chunks each chunk leaves its part, and the
 * chunk in which the run begins adds the parts up in a second kernel.
 */
#include "trainer/cuda/segments.h"

#include <cub/device/device_radix_sort.cuh>

namespace {

const int CHUNK = 32, AHEAD = 4;        /* AHEAD: rows that are read before they are added */

__global__ void __launch_bounds__(256) count_up(int32_t *at, int64_t n)
{
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (i < n)
        at[i] = (int32_t)i;
}

template <typename G, int N> __device__ __forceinline__ void add(G *to, const float (&sum)[N])
{
    float v[N];

    row_get(v, to);
#pragma unroll
    for (int k = 0; k < N; k++)
        v[k] += sum[k];
    row_put(to, v);
}

/* Rows [from, from + AHEAD) of those below m; rows beyond are 0. */
template <typename T, int N>
__device__ __forceinline__ void fetch(float (&v)[AHEAD][N], const T *rows, const int32_t *at,
                                      int64_t from, int64_t m, int64_t dim, int64_t c)
{
#pragma unroll
    for (int k = 0; k < AHEAD; k++) {
        if (from + k < m) {
            row_get(v[k], rows + at[from + k] * dim + c);
        } else {
#pragma unroll
            for (int i = 0; i < N; i++)
                v[k][i] = 0;
        }
    }
}

/* parts: [chunks][2][dim], of the run continued from the chunk before, and of the run that
 * begins here and continues. */
template <typename T, typename G, int N>
__global__ void __launch_bounds__(256)
add_chunks(G *table, float *parts, const T *rows, const int32_t *ids, const int32_t *at, int64_t n,
           int64_t dim, int64_t none)
{
    __shared__ int32_t id[CHUNK + 2], row[CHUNK];
    int64_t first = (int64_t)blockIdx.x * CHUNK;
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    int m = (int)(n - first < CHUNK ? n - first : CHUNK);
    float sum[N] = {}, v[AHEAD][N];
    int begin = 0;

    for (int i = (int)threadIdx.x; i < m + 2; i += (int)blockDim.x) {
        int64_t k = first + i - 1;

        id[i] = k >= 0 && k < n ? ids[k] : -1;
        if (i >= 1 && i <= m)
            row[i - 1] = at[k];
    }
    __syncthreads();
    if (c >= dim)
        return;
    for (int i = 0; i < m; i += AHEAD) {
        fetch<T, N>(v, rows, row, i, m, dim, c);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int e = i + k;
            int32_t me = e < m ? id[e + 1] : -1;
            bool from_left, to_right;

            if (e >= m)
                break;
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += v[k][j];
            to_right = id[e + 2] == me;
            if (e + 1 < m && to_right)
                continue;               /* the run continues */
            from_left = begin == 0 && id[0] == me;
            if (from_left)
                row_put(parts + (2 * (int64_t)blockIdx.x) * dim + c, sum);
            else if (to_right)
                row_put(parts + (2 * (int64_t)blockIdx.x + 1) * dim + c, sum);
            else if (me != none)
                add(table + me * dim + c, sum);
            begin = e + 1;
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] = 0;
        }
    }
}

/* Sum the runs that cross chunks, each by the chunk where it begins. */
template <typename G, int N>
__global__ void __launch_bounds__(256)
join_chunks(G *table, const float *parts, const int32_t *ids, int64_t n, int64_t dim, int64_t none)
{
    int64_t first = (int64_t)blockIdx.x * CHUNK, next = first + CHUNK;
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    float sum[N], v[N];
    int32_t id;

    if (next >= n || c >= dim)
        return;
    id = ids[next];
    if (ids[next - 1] != id || id == none)
        return;
    if (ids[first] == id && first > 0 && ids[first - 1] == id)
        return;                         /* it began before */
    row_get(sum, parts + (2 * (int64_t)blockIdx.x + 1) * dim + c);
    for (int64_t chunk = blockIdx.x + 1;; chunk++) {
        int64_t end = (chunk + 1) * CHUNK;

        row_get(v, parts + 2 * chunk * dim + c);
#pragma unroll
        for (int k = 0; k < N; k++)
            sum[k] += v[k];
        if (end >= n || ids[end - 1] != id || ids[end] != id)
            break;
    }
    add(table + id * dim + c, sum);
}

/* The first position whose id is not below. */
__device__ __forceinline__ int64_t place_of(const int32_t *ids, int64_t n, int32_t id)
{
    int64_t low = 0, high = n;

    while (low < high) {
        int64_t mid = (low + high) / 2;

        if (ids[mid] < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

template <typename T, int N>
__global__ void __launch_bounds__(256)
pick_rows(float *table, const int32_t *chosen, const T *rows, const int32_t *ids,
          const int32_t *at, int64_t n, int64_t dim, int64_t none)
{
    int32_t id = chosen[blockIdx.x];
    int64_t c = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * N;
    int64_t begin = place_of(ids, n, id), end = place_of(ids, n, id + 1);
    float sum[N] = {}, v[AHEAD][N];

    if (c >= dim || id == none || begin == end)
        return;
    for (int64_t i = begin; i < end; i += AHEAD) {
        fetch<T, N>(v, rows, at, i, end, dim, c);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += v[k][j];
    }
    add(table + blockIdx.x * dim + c, sum);
}

/* A warp for each position; at the first position of a run it sums the run, a lane for each
 * column. */
__global__ void __launch_bounds__(256)
add_columns(float *table, int64_t stride, const float *rows, const int32_t *ids, const int32_t *at,
            int64_t n, int64_t dim, int64_t none)
{
    int64_t begin = (int64_t)blockIdx.x * 8 + threadIdx.x / 32;
    int32_t id = begin < n ? ids[begin] : 0;

    if (begin >= n || id == none || (begin > 0 && ids[begin - 1] == id))
        return;
    for (int64_t r = threadIdx.x % 32; r < dim; r += 32) {
        float sum = 0;

        for (int64_t i = begin; i < n && ids[i] == id; i++)
            sum += rows[at[i] * dim + r];
        table[r * stride + id] += sum;
    }
}

/* Threads per block, and tiles of the columns. */
dim3 tiles(unsigned *threads, int64_t blocks, int64_t packs)
{
    *threads = packs < 256 ? (unsigned)cuda_blocks(packs, 32) * 32 : 256;
    return dim3((unsigned)blocks, (unsigned)cuda_blocks(packs, *threads));
}

template <typename T, typename G, int N>
void launch_add(const struct segments *s, cudaStream_t on, void *table, const void *rows,
                int64_t dim, int64_t none)
{
    unsigned threads;
    dim3 grid = tiles(&threads, cuda_blocks(s->n, CHUNK), dim / N);

    add_chunks<T, G, N><<<grid, threads, 0, on>>>((G *)table, s->parts, (const T *)rows, s->ids,
                                                  s->at, s->n, dim, none);
    if (grid.x > 1)
        join_chunks<G, N><<<grid, threads, 0, on>>>((G *)table, s->parts, s->ids, s->n, dim, none);
}

template <typename T, typename G>
void run_add(const struct segments *s, cudaStream_t on, void *table, const void *rows, int64_t dim,
             int64_t none)
{
    if (row_packable<T>(rows, dim) && row_packable<G>(table, dim))
        launch_add<T, G, CUDA_PACK<T>>(s, on, table, rows, dim, none);
    else
        launch_add<T, G, 1>(s, on, table, rows, dim, none);
}

template <typename T, int N>
void launch_pick(const struct segments *s, cudaStream_t on, float *table, const int32_t *chosen,
                 int64_t n, const void *rows, int64_t dim, int64_t none)
{
    unsigned threads;
    dim3 grid = tiles(&threads, n, dim / N);

    pick_rows<T, N><<<grid, threads, 0, on>>>(table, chosen, (const T *)rows, s->ids, s->at, s->n,
                                              dim, none);
}

template <typename T>
void run_pick(const struct segments *s, cudaStream_t on, float *table, const int32_t *chosen,
              int64_t n, const void *rows, int64_t dim, int64_t none)
{
    if (row_packable<T>(rows, dim) && row_packable<float>(table, dim))
        launch_pick<T, CUDA_PACK<T>>(s, on, table, chosen, n, rows, dim, none);
    else
        launch_pick<T, 1>(s, on, table, chosen, n, rows, dim, none);
}

cudaError_t sort(void *temp, size_t *bytes, const int32_t *ids, int32_t *sorted, const int32_t *at,
                 int32_t *sorted_at, int64_t n, int bits, cudaStream_t on)
{
    return cub::DeviceRadixSort::SortPairs(temp, *bytes, (const uint32_t *)ids, (uint32_t *)sorted,
                                           at, sorted_at, (int)n, 0, bits, on);
}

size_t sort_bytes(int64_t n)
{
    size_t bytes = 0;

    sort(NULL, &bytes, NULL, NULL, NULL, NULL, n, 32, 0);
    return bytes;
}

} /* namespace */

uint64_t segments_bytes(int64_t n, int64_t dim)
{
    return 3 * cuda_align((uint64_t)n * sizeof(int32_t)) + cuda_align(sort_bytes(n)) +
           cuda_align((uint64_t)(cuda_blocks(n, CHUNK) * 2 * dim) * sizeof(float));
}

bool segments_sort(struct segments *s, struct device *dev, const char *op, void *work,
                   const int32_t *ids, int64_t n, int64_t limit)
{
    size_t each = cuda_align((uint64_t)n * sizeof(int32_t)), bytes = sort_bytes(n);
    char *at = (char *)work;
    int32_t *sorted = (int32_t *)at, *from = (int32_t *)(at + each);
    int32_t *to = (int32_t *)(at + 2 * each);
    int bits = limit > 0 ? 1 : 31;

    while (limit > 0 && bits < 31 && limit > (int64_t)1 << bits)
        bits++;
    s->ids = sorted;
    s->at = to;
    s->parts = (float *)(at + 3 * each + cuda_align(bytes));
    s->n = n;
    if (dev->err.code)
        return false;
    count_up<<<(unsigned)cuda_blocks(n, 256), 256, 0, cuda_of(dev)->stream>>>(from, n);
    return cuda_launched(dev, op) &&
           cuda_ok(dev, op, sort(at + 3 * each, &bytes, ids, sorted, from, to, n, bits,
                                 cuda_of(dev)->stream));
}

void segments_add(const struct segments *s, struct device *dev, const char *op, void *table,
                  bool act, const void *rows, int64_t dim, int64_t none)
{
    cudaStream_t on = cuda_of(dev)->stream;

    if (dev->err.code)
        return;
    CUDA_ACT(dev, {
        if (act)
            run_add<T, T>(s, on, table, rows, dim, none);
        else
            run_add<T, float>(s, on, table, rows, dim, none);
    });
    cuda_launched(dev, op);
}

void segments_pick(const struct segments *s, struct device *dev, const char *op, float *table,
                   const int32_t *chosen, int64_t n, const void *rows, int64_t dim, int64_t none)
{
    if (dev->err.code || n == 0)
        return;
    CUDA_ACT(dev, run_pick<T>(s, cuda_of(dev)->stream, table, chosen, n, rows, dim, none));
    cuda_launched(dev, op);
}

void segments_columns(const struct segments *s, struct device *dev, const char *op, float *table,
                      int64_t stride, const float *rows, int64_t dim, int64_t none)
{
    if (dev->err.code)
        return;
    add_columns<<<(unsigned)cuda_blocks(s->n, 8), 256, 0, cuda_of(dev)->stream>>>(
        table, stride, rows, s->ids, s->at, s->n, dim, none);
    cuda_launched(dev, op);
}
