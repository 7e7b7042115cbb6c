/*
 * factored - the parts of a step of Adafactor over the elements that a rank owns: what
 * trainer/cpu/factored.c does, many parameters in a launch.
 *
 * Parameters are passed by value, as a parameter of the kernel; a block finds its own by its
 * number.  Sums are f64 and have an order that depends on the shapes alone: a warp sums a row, a
 * block 32 columns, and a fixed number of blocks a parameter's squares, which another block adds
 * up.  Between MOMENTS and UPDATE the sums of rows are replaced by what an element's row
 * multiplies it by.
 */
#include "trainer/cuda/cuda.h"

#include <math.h>

namespace {

const int block = 256, warps = block / 32;
const int most = 64;                    /* parameters in one launch: 9 KB of its parameters */
const int parts = CUDA_SMALL / most;    /* blocks that sum one's squares, at most */
const int each = 16;                    /* elements of a thread, or more */
const int tall = 16;                    /* warps of a block that sums columns */

struct table {
    int32_t            n;
    uint32_t           first[most + 1];     /* blocks of those before each */
    struct op_factored op[most];
};

struct scalars {
    double keep, eps, eps_rms, clip, lr;
    float  beta1, one_minus_b1, grad_scale;
    bool   scale_parameter, relative;   /* lr: of relative steps, whatever the group's is */
    const struct op_verdict *verdict;
};

/* The factor of gradients; false: nothing is stepped. */
__device__ __forceinline__ bool factor_of(float *scale, const struct scalars &s)
{
    *scale = s.verdict ? s.verdict->factor : s.grad_scale;
    return !s.verdict || s.verdict->finite;
}

/* The parameter that a block belongs to. */
__device__ __forceinline__ int index_of(const struct table &t, uint32_t number)
{
    int lo = 0, hi = t.n;

    while (hi - lo > 1) {
        int mid = (lo + hi) / 2;

        if (t.first[mid] <= number)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

__host__ __device__ __forceinline__ int64_t columns_of(const struct op_factored &f)
{
    return f.cols ? f.rows / f.height * f.cols : 0;
}

/* -- sums ------------------------------------------------------------------------------------- */

/* A warp for each row, of which the rank owns some columns, or none. */
__global__ void __launch_bounds__(block)
sum_rows(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s))
{
    int i = index_of(t, blockIdx.x), lane = (int)threadIdx.x % 32;
    const struct op_factored &f = t.op[i];
    int64_t wide = f.cols ? f.cols : 1;
    int64_t row = (int64_t)(blockIdx.x - t.first[i]) * warps + threadIdx.x / 32;
    int64_t begin = row * wide - f.start, end = begin + wide;
    double sum = 0;
    float scale;

    if (!factor_of(&scale, s) || row >= f.rows)
        return;
    begin = begin > 0 ? begin : 0;
    end = end < f.n ? end : f.n;
#pragma unroll 4
    for (int64_t k = begin + lane; k < end; k += 32) {
        double x = f.grad[k] * scale;

        sum += x * x;
    }
    sum = cuda_warp_sum(sum);
    if (lane == 0)
        f.sum[row] = sum;
}

/* A block for each 32 columns of a matrix: every warp takes some rows. */
__global__ void __launch_bounds__(32 * tall)
sum_columns(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s))
{
    __shared__ double part[tall][32];
    int i = index_of(t, blockIdx.x), lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const struct op_factored &f = t.op[i];
    int64_t tiles = (f.cols + 31) / 32, number = (int64_t)(blockIdx.x - t.first[i]);
    int64_t matrix = number / tiles, column = number % tiles * 32 + lane;
    int64_t row = matrix * f.height, end = row + f.height, owned = f.start / f.cols;
    double sum = 0;
    float scale;

    if (!factor_of(&scale, s))
        return;
    row = row > owned ? row : owned;
    owned = f.n > 0 ? (f.start + f.n - 1) / f.cols + 1 : 0;
    end = end < owned ? end : owned;
#pragma unroll 4
    for (int64_t r = row + warp; r < end; r += tall) {
        int64_t k = r * f.cols + column - f.start;

        if (column < f.cols && k >= 0 && k < f.n) {
            double x = f.grad[k] * scale;

            sum += x * x;
        }
    }
    part[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= f.cols)
        return;
    for (int k = 1; k < tall; k++)
        sum += part[k][lane];
    f.sum[f.rows + matrix * f.cols + column] = sum;
}

/* -- moments ---------------------------------------------------------------------------------- */

/* The numbers of rows and columns decay towards their means. */
__global__ void __launch_bounds__(block)
decay(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s))
{
    int i = index_of(t, blockIdx.x);
    const struct op_factored &f = t.op[i];
    int64_t k = (int64_t)(blockIdx.x - t.first[i]) * block + threadIdx.x;
    bool of_row = k < f.rows;
    float *to = of_row ? f.row + k : f.col + (k - f.rows), scale;
    double count = !of_row ? (double)f.tall : f.cols ? (double)f.cols : 1, sum;

    if (!factor_of(&scale, s))
        return;
    if (k == 0 && f.first)
        *f.rms = (float)sqrt(*f.weight_square / (double)f.numel);
    if (k >= f.rows + columns_of(f) || (!of_row && f.above > 0))    /* one does it for a matrix */
        return;
    sum = !of_row && f.beside ? f.sum[k] + f.beside[k - f.rows] : f.sum[k];
    *to = (float)(*to * s.keep + (1.0 - s.keep) * (sum / count + s.eps));
}

/* A block for each matrix: what the elements of its rows are multiplied by. */
__global__ void __launch_bounds__(1024)
scale_rows(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s))
{
    int i = index_of(t, blockIdx.x);
    const struct op_factored &f = t.op[i];
    int64_t first = (int64_t)(blockIdx.x - t.first[i]) * f.height, end = first + f.height;
    double mean = 0;
    float scale;

    if (!factor_of(&scale, s))
        return;
    for (int64_t r = first - f.above + threadIdx.x; r < first - f.above + f.tall; r += blockDim.x)
        mean += f.row[r];
    mean = cuda_block_sum(mean) / (double)f.tall;
    for (int64_t r = first + threadIdx.x; r < end; r += blockDim.x)
        f.sum[r] = (float)sqrt(mean / f.row[r]);
}

/* Element k of those that the rank owns, divided by the root of its second moment. */
__device__ __forceinline__ float direction(const struct op_factored &f, int64_t k, float scale)
{
    int64_t whole = f.start + k, row, matrix;

    if (!f.cols)
        return f.grad[k] * scale / sqrtf(f.row[whole]);
    row = whole / f.cols;
    matrix = f.height == f.rows ? 0 : row / f.height;
    return f.grad[k] * (scale * (float)f.sum[row]) /
           sqrtf(f.col[matrix * f.cols + (whole - row * f.cols)]);
}

/* -- squares ---------------------------------------------------------------------------------- */

enum which { WEIGHTS, UPDATES };

template <enum which OF>
__global__ void __launch_bounds__(block)
square(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s),
       double *part)
{
    int i = index_of(t, blockIdx.x);
    const struct op_factored &f = t.op[i];
    int64_t stride = (int64_t)(t.first[i + 1] - t.first[i]) * block;
    double sum = 0;
    float scale;

    if (!factor_of(&scale, s))
        return;
#pragma unroll 4
    for (int64_t k = (int64_t)(blockIdx.x - t.first[i]) * block + threadIdx.x; k < f.n;
         k += stride) {
        double x = OF == WEIGHTS ? f.param[k] : direction(f, k, scale);

        sum += x * x;
    }
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}

/* A block for each parameter; that of the first of a tensor, or of its first in this launch, adds
 * up those of all of it. */
template <enum which OF>
__global__ void __launch_bounds__(block)
add_up(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s),
       const double *part)
{
    const struct op_factored &f = t.op[blockIdx.x];
    double *to = OF == WEIGHTS ? f.weight_square : f.update_square, sum = 0;
    int32_t end = (int32_t)blockIdx.x + 1;
    float scale;

    if (!factor_of(&scale, s) || (blockIdx.x > 0 && !f.first))
        return;
    while (end < t.n && !t.op[end].first)
        end++;
    for (uint32_t k = t.first[blockIdx.x] + threadIdx.x; k < t.first[end]; k += block)
        sum += part[k];
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0)
        *to = f.first ? sum : *to + sum;
}

/* -- weights ---------------------------------------------------------------------------------- */

template <typename T>
__global__ void __launch_bounds__(block)
update(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, s))
{
    int i = index_of(t, blockIdx.x);
    const struct op_factored &f = t.op[i];
    int64_t first = (int64_t)(blockIdx.x - t.first[i]) * block * each + threadIdx.x;
    double lr = (s.relative ? s.lr : f.lr) *
                (s.scale_parameter ? fmax(s.eps_rms, (double)*f.rms) : 1.0);
    float rate = (float)(lr / fmax(1.0, sqrt(*f.update_square / (double)f.numel) / s.clip));
    float keep = (float)(1.0 - lr * f.weight_decay), scale;

    if (!factor_of(&scale, s))
        return;
#pragma unroll 4
    for (int e = 0; e < each; e++) {
        int64_t k = first + e * block;
        float x, p;

        if (k >= f.n)
            return;
        x = direction(f, k, scale) * rate;
        if (f.exp_avg)
            x = f.exp_avg[k] = f.exp_avg[k] * s.beta1 + x * s.one_minus_b1;
        f.param[k] = p = f.param[k] * keep - x;
        if (f.rounded)
            ((T *)f.rounded)[k] = cuda_from_f32<T>(p);
    }
}

/* -- launching -------------------------------------------------------------------------------- */

/* Blocks that a parameter needs. */
int64_t of_rows(const struct op_factored &f) { return cuda_blocks(f.rows, warps); }
int64_t of_columns(const struct op_factored &f)
{
    return f.cols ? f.rows / f.height * cuda_blocks(f.cols, 32) : 0;
}
int64_t of_numbers(const struct op_factored &f)
{
    return cuda_blocks(f.rows + columns_of(f), block);
}
int64_t of_matrices(const struct op_factored &f) { return f.cols ? f.rows / f.height : 0; }
int64_t of_elements(const struct op_factored &f) { return cuda_blocks(f.n, block * each); }

/* One at least: what is owned nowhere has sums too. */
int64_t of_squares(const struct op_factored &f)
{
    int64_t blocks = of_elements(f);

    return blocks < 1 ? 1 : blocks < parts ? blocks : parts;
}

/* go(table) of as many tables as the parameters need. */
template <typename G>
void over(struct device *dev, int64_t (*blocks)(const struct op_factored &f),
          const struct op_factored *f, int64_t n, G go)
{
    struct table t;

    t.n = 0;
    t.first[0] = 0;
    for (int64_t i = 0; i < n && dev->err.code == 0; i++) {
        int64_t some = blocks(f[i]);

        if (some > 0) {
            t.op[t.n] = f[i];
            t.first[t.n + 1] = t.first[t.n] + (uint32_t)some;
            t.n++;
        }
        if (t.n > 0 && (t.n == most || i + 1 == n)) {
            go(t);
            cuda_launched(dev, "adafactor");
            t.n = 0;
        }
    }
}

template <typename K>
void each_of(struct device *dev, K *kernel, int threads,
             int64_t (*blocks)(const struct op_factored &f), const struct op_factored *f,
             int64_t n, const struct scalars &s)
{
    over(dev, blocks, f, n, [&](const struct table &t) {
        cuda_launch(cuda_of(dev)->stream, kernel, t.first[t.n], threads, t, s);
    });
}

template <enum which OF>
void squares(struct device *dev, const struct op_factored *f, int64_t n, const struct scalars &s)
{
    double *part = cuda_of(dev)->small;

    static_assert(most * parts <= CUDA_SMALL, "the device's scratch");
    over(dev, of_squares, f, n, [&](const struct table &t) {
        cuda_launch(cuda_of(dev)->stream, square<OF>, t.first[t.n], block, t, s, part);
        cuda_launch(cuda_of(dev)->stream, add_up<OF>, t.n, block, t, s, part);
    });
}

} /* namespace */

void cuda_factored(struct device *dev, enum op_factored_part part, const struct op_factored *f,
                   int64_t n, const struct adamw *a)
{
    const struct op_adafactor *o = a->adafactor;
    double step = (double)a->step;
    struct scalars s = {1.0 - pow(step, o->decay_rate), o->eps, o->eps_rms, o->clip_threshold,
                        fmin(o->warmup_init ? 1e-6 * step : 1e-2, 1.0 / sqrt(step)),
                        (float)o->beta1, (float)(1.0 - o->beta1), (float)a->grad_scale,
                        o->scale_parameter, o->relative_step, a->verdict};

    if (part == OP_FACTORED_SUMS) {
        each_of(dev, sum_rows, block, of_rows, f, n, s);
        each_of(dev, sum_columns, 32 * tall, of_columns, f, n, s);
        squares<WEIGHTS>(dev, f, n, s);
    } else if (part == OP_FACTORED_MOMENTS) {
        each_of(dev, decay, block, of_numbers, f, n, s);
        each_of(dev, scale_rows, 1024, of_matrices, f, n, s);
        squares<UPDATES>(dev, f, n, s);
    } else {
        CUDA_ACT(dev, each_of(dev, update<T>, block, of_elements, f, n, s));
    }
}
