/*
 * optim - the sum of squares for clipping, and the verdict on the step.
 *
 * Squares are summed in f64 by a fixed number of blocks, each over its own stripes.  The
 * blocks' sums are added in a fixed order too: by the host, or by one block, whose verdict
 * stays on the GPU.
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

__global__ void __launch_bounds__(block)
judge(struct op_verdict *verdict, const double *part, double max_norm, double scale)
{
    double sum = 0;

    for (int i = (int)threadIdx.x; i < square_blocks; i += block)
        sum += part[i];
    sum = cuda_block_sum(sum);
    if (threadIdx.x == 0)
        *verdict = verdict_of(sum, max_norm, scale);
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
    *sum = 0;
    if (dev->err.code || n <= 0)
        return;
    square<<<square_blocks, block, 0, d->stream>>>(d->small, grad, n, lead, quads);
    if (!cuda_launched(dev, "sum_squares") ||
        !cuda_ok(dev, "sum_squares", cudaMemcpyAsync(d->host, d->small,
                                                     square_blocks * sizeof(double),
                                                     cudaMemcpyDeviceToHost, d->stream)) ||
        !cuda_ok(dev, "sum_squares", cudaStreamSynchronize(d->stream)))
        return;
    for (int i = 0; i < square_blocks; i++)
        *sum += d->host[i];
}

void cuda_grad_norm(struct device *dev, struct op_verdict *verdict, const float *grad, int64_t n,
                    double max_norm, double scale)
{
    struct cuda_device *d = cuda_of(dev);
    int64_t lead = lead_of(grad, n > 0 ? n : 0), quads = (n - lead) / 4;

    if (dev->err.code)
        return;
    square<<<square_blocks, block, 0, d->stream>>>(d->small, grad, n, lead, quads);
    judge<<<1, block, 0, d->stream>>>(verdict, d->small, max_norm, scale);
    cuda_launched(dev, "grad_norm");
}
