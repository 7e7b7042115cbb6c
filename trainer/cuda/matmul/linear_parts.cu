/*
 * linear_parts - the elementwise kernels around a projection's products, and column sums.
 *
 * A thread moves eight elements at once where rows are multiples of eight and pointers allow
 * it, else one.
 */
#include "trainer/cuda/matmul/linear.h"

#include "trainer/cuda/act.h"
#include "trainer/cuda/row.h"

enum { THREADS = 256, WIDE = 8, SUM_ROWS = 8, SUM_BLOCKS = 528 };

/* Row and first column of this thread's pack; false: none. */
template <int N>
__device__ __forceinline__ bool place(int64_t *row, int64_t *col, int64_t n, int64_t per)
{
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= n * per)
        return false;
    *row = i <= 0xffffffff && per <= 0xffffffff ? (int64_t)((uint32_t)i / (uint32_t)per) : i / per;
    *col = (i - *row * per) * N;
    return true;
}

template <typename T, enum op_act A, int N>
static __global__ void __launch_bounds__(THREADS)
finish_kernel(T *out, T *pre, const T *p, const T *bias, const T *residual, int64_t n,
              int64_t width, int64_t ld, int64_t p_ld, struct cuda_drop d)
{
    int64_t row, col;
    float v[N], f[N];

    if (!place<N>(&row, &col, n, width / N))
        return;
    row_get<T, N>(v, p + row * p_ld + col);
    if (bias)
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += cuda_to_f32(bias[col + j]);
    if (pre)
        row_put<T, N>(pre + row * width + col, v);
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] = act_value<A>(v[j]);
    row_drop<N>(v, d, row, col);
    if (residual) {
        row_get<T, N>(f, residual + row * width + col);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += f[j];
    }
    row_put<T, N>(out + row * ld + col, v);
}

template <typename T, enum op_act A, int N>
static __global__ void __launch_bounds__(THREADS)
act_back_kernel(T *x, T *dx, const T *pre, int64_t n, int64_t width, struct cuda_drop d)
{
    int64_t row, col;
    float v[N], g[N];

    if (!place<N>(&row, &col, n, width / N))
        return;
    row_get<T, N>(v, pre + row * width + col);
    if (dx) {
        dx += row * width + col;
        row_get<T, N>(g, dx);
    }
#pragma unroll
    for (int j = 0; j < N; j++) {
        float value, slope = act_slope<A>(v[j], &value);

        v[j] = value;
        g[j] = dx ? g[j] * slope : 0.0f;
    }
    row_drop<N>(v, d, row, col);
    row_drop<N>(g, d, row, col);
    if (x)
        row_put<T, N>(x + row * width + col, v);
    if (dx)
        row_put<T, N>(dx, g);
}

enum { BYTES = 4 };                     /* bytes that a thread writes */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
positive_kernel(unsigned char *bits, const T *x, int64_t n)
{
    int64_t first = (int64_t)blockIdx.x * THREADS * BYTES + threadIdx.x;
    float v[BYTES][WIDE];

#pragma unroll
    for (int u = 0; u < BYTES; u++)
        if (first + u * THREADS < n)
            row_get<T, WIDE>(v[u], x + (first + u * THREADS) * WIDE);
#pragma unroll
    for (int u = 0; u < BYTES; u++) {
        unsigned byte = 0;

        if (first + u * THREADS >= n)
            return;
#pragma unroll
        for (int j = 0; j < WIDE; j++)
            byte |= (unsigned)(v[u][j] > 0) << j;
        bits[first + u * THREADS] = (unsigned char)byte;
    }
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
mix_kernel(T *to, T *rest, const T *x, int64_t ld, const float *gain, float less, const T *add,
           const T *more, int64_t n, int64_t width, struct cuda_drop d)
{
    int64_t row, col;
    float v[N], f[N];

    if (!place<N>(&row, &col, n, width / N))
        return;
    row_get<T, N>(v, x + row * ld + col);
#pragma unroll
    for (int j = 0; j < N; j++) {
        f[j] = v[j];
        v[j] *= gain ? gain[col + j] - less : 1.0f;
    }
    row_drop<N>(v, d, row, col);
    if (rest) {
#pragma unroll
        for (int j = 0; j < N; j++)
            f[j] -= cuda_to_f32(cuda_from_f32<T>(v[j]));
        row_put<T, N>(rest + row * width + col, f);
    }
    if (add) {
        row_get<T, N>(f, add + row * width + col);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += f[j];
    }
    if (more) {
        row_get<T, N>(f, more + row * width + col);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] += f[j];
    }
    row_put<T, N>(to + row * width + col, v);
}

/* Rows [begin, end) of this block's columns into part[block row]; 16-bit rows eight deep. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, 4)
sums_kernel(float *part, const T *x, int64_t ld, int64_t n, int64_t width, int64_t rows)
{
    constexpr int DEEP = sizeof(T) == 2 ? 8 : 4;
    __shared__ float shared[SUM_ROWS][32 * N];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int64_t first = (int64_t)blockIdx.x * 32 * N, col = first + lane * N;
    int64_t begin = (int64_t)blockIdx.y * rows, end = begin + rows < n ? begin + rows : n;
    float sum[N] = {};

    cuda_pdl_wait();                    /* allows the end of the chain to be launched */
    for (int64_t i = begin + group; col < width && i < end; i += DEEP * SUM_ROWS) {
        cuda_pack<T, N> v[DEEP];

#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            v[u] = {};
            if (i + u * SUM_ROWS < end)
                v[u] = *(const cuda_pack<T, N> *)(x + (i + u * SUM_ROWS) * ld + col);
        }
#pragma unroll
        for (int u = 0; u < DEEP; u++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[j] += cuda_to_f32(v[u].at[j]);
    }
#pragma unroll
    for (int j = 0; j < N; j++)
        shared[group][lane * N + j] = sum[j];
    __syncthreads();
    for (int j = (int)threadIdx.x; j < 32 * N && first + j < width; j += THREADS) {
        float all = 0;

#pragma unroll
        for (int g = 0; g < SUM_ROWS; g++)
            all += shared[g][j];
        part[(int64_t)blockIdx.y * width + first + j] = all;
    }
}

/* 32 columns a block; its eight warps take the parts round robin. */
static __global__ void __launch_bounds__(THREADS)
sums_end_kernel(float *sum, const float *part, int64_t parts, int64_t width, bool add)
{
    __shared__ float shared[SUM_ROWS][32];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int64_t j = (int64_t)blockIdx.x * 32 + lane;
    float all = 0;

    cuda_pdl_wait();
    if (j < width)
#pragma unroll 4
        for (int64_t i = group; i < parts; i += SUM_ROWS)
            all += part[i * width + j];
    shared[group][lane] = all;
    __syncthreads();
    if (group != 0 || j >= width)
        return;
    all = add ? sum[j] : 0.0f;
#pragma unroll
    for (int g = 0; g < SUM_ROWS; g++)
        all += shared[g][lane];
    sum[j] = all;
}

static bool fits(const struct device *dev, const void *p, int64_t ld)
{
    return !p || (ld % WIDE == 0 && cuda_aligned(p, WIDE * cuda_size(dev)));
}

/* Run the statements with N as the elements of a thread. */
#define BY_WIDTH(wide, ...)                                                                    \
    do {                                                                                       \
        if (wide) {                                                                            \
            constexpr int N = WIDE;                                                            \
            __VA_ARGS__;                                                                       \
        } else {                                                                               \
            constexpr int N = 1;                                                               \
            __VA_ARGS__;                                                                       \
        }                                                                                      \
    } while (0)

static int64_t blocks_of(int64_t n, int64_t width, int N)
{
    return cuda_blocks(n * (width / N), THREADS);
}

void linear_finish(struct device *dev, const struct linear_finish *f)
{
    int64_t p_ld = f->p_ld ? f->p_ld : f->ld;
    bool wide = f->width % WIDE == 0 && fits(dev, f->p, p_ld) && fits(dev, f->out, f->ld) &&
                fits(dev, f->pre, f->width) && fits(dev, f->residual, f->width);
    cudaStream_t stream = cuda_of(dev)->stream;
    struct cuda_drop d = cuda_drop_of(&f->drop);

    if (dev->err.code || f->n == 0)
        return;
    CUDA_ACT(dev, CUDA_OP_ACT(f->act, BY_WIDTH(wide,
        cuda_launch(stream, finish_kernel<T, A, N>, blocks_of(f->n, f->width, N), THREADS,
                    (T *)f->out, (T *)f->pre, (const T *)f->p, (const T *)f->bias,
                    (const T *)f->residual, f->n, f->width, f->ld, p_ld, d))));
    cuda_launched(dev, "linear_fwd");
}

void linear_act_back(struct device *dev, enum op_act act, void *x, void *dx, const void *pre,
                     int64_t n, int64_t width, const struct op_drop *drop)
{
    bool wide = fits(dev, x, width) && fits(dev, dx, width) && fits(dev, pre, width);
    cudaStream_t stream = cuda_of(dev)->stream;
    struct cuda_drop d = cuda_drop_of(drop);

    if (dev->err.code || n == 0)
        return;
    CUDA_ACT(dev, CUDA_OP_ACT(act, BY_WIDTH(wide,
        cuda_launch(stream, act_back_kernel<T, A, N>, blocks_of(n, width, N), THREADS, (T *)x,
                    (T *)dx, (const T *)pre, n, width, d))));
    cuda_launched(dev, "linear_bwd");
}

void linear_positive(struct device *dev, void *bits, const void *x, int64_t n, int64_t width)
{
    int64_t bytes = n * width / 8;

    if (dev->err.code || n == 0)
        return;
    CUDA_ACT(dev, cuda_launch(cuda_of(dev)->stream, positive_kernel<T>,
                              cuda_blocks(bytes, THREADS * BYTES), THREADS,
                              (unsigned char *)bits, (const T *)x, bytes));
    cuda_launched(dev, "linear_bwd");
}

void linear_mix(struct device *dev, const struct linear_mix *m)
{
    int64_t ld = m->ld ? m->ld : m->width;
    bool wide = m->width % WIDE == 0 && fits(dev, m->to, m->width) && fits(dev, m->x, ld) &&
                fits(dev, m->rest, m->width) && fits(dev, m->add, m->width) &&
                fits(dev, m->more, m->width);
    cudaStream_t stream = cuda_of(dev)->stream;
    struct cuda_drop d = cuda_drop_of(&m->drop);

    if (dev->err.code || m->n == 0)
        return;
    CUDA_ACT(dev, BY_WIDTH(wide,
        cuda_launch(stream, mix_kernel<T, N>, blocks_of(m->n, m->width, N), THREADS, (T *)m->to,
                    (T *)m->rest, (const T *)m->x, ld, m->gain, m->less, (const T *)m->add,
                    (const T *)m->more, m->n, m->width, d)));
    cuda_launched(dev, "linear");
}

/* Rows of a part: as many parts as blocks are resident at once. */
static int64_t sum_rows(int64_t n, int64_t width)
{
    int64_t groups = cuda_blocks(width, 32 * WIDE), parts = SUM_BLOCKS / groups;

    return cuda_blocks(cuda_blocks(n, parts > 0 ? parts : 1), SUM_ROWS) * SUM_ROWS;
}

/* At least those parts, and never less for a larger width. */
uint64_t linear_sums_bytes(int64_t width)
{
    int64_t groups = cuda_blocks(width, 32 * WIDE);

    return (uint64_t)((SUM_BLOCKS + groups) * 32 * WIDE) * sizeof(float);
}

void linear_sums(struct device *dev, float *sum, const void *x, int64_t ld, int64_t n,
                 int64_t width, float *part, bool add)
{
    bool wide = width % WIDE == 0 && fits(dev, x, ld);
    int64_t rows = sum_rows(n, width), parts = cuda_blocks(n, rows);

    if (dev->err.code || n == 0)
        return;
    CUDA_ACT(dev, BY_WIDTH(wide, {
        dim3 grid((unsigned)cuda_blocks(width, 32 * N), (unsigned)parts);

        cuda_pdl_launch(dev, true, sums_kernel<T, N>, grid, dim3(THREADS), 0, part,
                        (const T *)x, ld, n, width, rows);
    }));
    cuda_pdl_launch(dev, true, sums_end_kernel, dim3((unsigned)cuda_blocks(width, 32)),
                    dim3(THREADS), 0, sum, part, parts, width, add);
    cuda_launched(dev, "column sums");
}
