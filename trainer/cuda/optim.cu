/*
 * optim - the sum of squares for clipping, the verdict on the step, and sums of gradients.
 *
 * Squares are summed in f64 by a fixed number of blocks, each over its own stripes.  One block
 * adds up the blocks' sums, in a fixed order too.
 */
#include "trainer/cuda/cuda.h"

#include <math.h>

extern "C" {
#include "trainer/ops/verdict.h"
}

namespace {

const int block = 256;
const int square_blocks = 1056, square_each = 4;

__device__ __forceinline__ double squares(float4 x)
{
    return (double)x.x * (double)x.x + (double)x.y * (double)x.y + (double)x.z * (double)x.z +
           (double)x.w * (double)x.w;
}

__global__ void __launch_bounds__(block)
square(double *part, const float *x, int64_t n, int64_t lead, int64_t quads)
{
    const float4 *at = (const float4 *)(x + lead);
    int64_t i = (int64_t)blockIdx.x * block + threadIdx.x, stride = (int64_t)square_blocks * block;
    double sum[square_each] = {};

    if (i < lead)
        sum[0] += (double)x[i] * (double)x[i];
    if (lead + 4 * quads + i < n)
        sum[0] += (double)x[lead + 4 * quads + i] * (double)x[lead + 4 * quads + i];
    for (; i < quads; i += square_each * stride) {
        float4 v[square_each];

#pragma unroll
        for (int k = 0; k < square_each; k++)
            v[k] = i + k * stride < quads ? at[i + k * stride] : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int k = 0; k < square_each; k++)
            sum[k] += squares(v[k]);
    }
#pragma unroll
    for (int k = 1; k < square_each; k++)
        sum[0] += sum[k];
    sum[0] = cuda_block_sum(sum[0]);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum[0];
}

__global__ void __launch_bounds__(block) add_up(double *sum, const double *part)
{
    double x = 0;

    for (int i = (int)threadIdx.x; i < square_blocks; i += block)
        x += part[i];
    x = cuda_block_sum(x);
    if (threadIdx.x == 0)
        *sum = x;
}

__global__ void judge(struct op_verdict *verdict, const double *sum, double max_norm, double scale)
{
    *verdict = verdict_of(*sum, max_norm, scale);
}

__global__ void __launch_bounds__(block)
add(float *dst, const float *src, int64_t n, int64_t lead, int64_t quads)
{
    int64_t first = (int64_t)blockIdx.x * block + threadIdx.x;
    int64_t stride = (int64_t)gridDim.x * block;

    if (first < lead)
        dst[first] += src[first];
    if (lead + 4 * quads + first < n)
        dst[lead + 4 * quads + first] += src[lead + 4 * quads + first];
    for (int64_t i = first; i < quads; i += stride) {
        float4 a = ((const float4 *)(dst + lead))[i], b = ((const float4 *)(src + lead))[i];

        ((float4 *)(dst + lead))[i] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
    }
}

/* Elements before the first that is aligned to 16 bytes, at most n. */
int64_t lead_of(const void *p, int64_t n)
{
    int64_t lead = (int64_t)((16 - (uintptr_t)p % 16) % 16 / sizeof(float));

    return lead < n ? lead : n;
}

} /* namespace */

void cuda_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n)
{
    struct cuda_device *d = cuda_of(dev);
    int64_t lead = lead_of(grad, n > 0 ? n : 0), quads = (n - lead) / 4;

    static_assert(square_blocks <= CUDA_SMALL, "the device's scratch");
    if (dev->err.code)
        return;
    cuda_launch(d->stream, square, square_blocks, block, d->small, grad, n, lead, quads);
    cuda_launch(d->stream, add_up, 1, block, sum, d->small);
    cuda_launched(dev, "sum_squares");
}

void cuda_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
                double scale)
{
    if (dev->err.code)
        return;
    cuda_launch(cuda_of(dev)->stream, judge, 1, 1, verdict, sum, max_norm, scale);
    cuda_launched(dev, "judge");
}

/* Beside collectives, whose speed the link bounds: a quarter of the GPU is enough. */
void cuda_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n)
{
    bool alike = (uintptr_t)dst % 16 == (uintptr_t)src % 16;
    int64_t lead = alike ? lead_of(dst, n > 0 ? n : 0) : n, quads = (n - lead) / 4;
    int64_t work = alike ? quads + block : n, blocks = (work + block - 1) / block;
    cudaStream_t on = cuda_stream_of(dev, stream);

    if (dev->err.code || n <= 0)
        return;
    if (alike && blocks > 1056)
        blocks = 1056;
    cuda_launch(on, add, blocks, block, dst, src, n, lead, quads);
    cuda_launched(dev, "add");
}
