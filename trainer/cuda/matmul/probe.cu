/*
 * matmul/probe - checksums that distinguish right from wrong results of a product: the sums of D
 * under eight patterns of signs, and the sum of its squares.
 *
 * The sums of two correct algorithms differ only by rounding; those of one that ignores a part of
 * k, or reads uninitialised memory, differ by a considerable part of D's norm in nearly all
 * patterns.
 */
#include "trainer/cuda/matmul/call.h"

#include <math.h>

enum { BLOCK = 256, GARBAGE = 0x6e };   /* 1.8e28 as f32, 1.8e28 as bf16, 6600 as f16 */

__device__ __forceinline__ uint32_t signs_of(int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u ^ (uint32_t)(i >> 32);

    h = (h ^ h >> 16) * 2246822519u;
    h = (h ^ h >> 13) * 3266489917u;
    return h ^ h >> 16;
}

/* to[CHECKSUM_SIGNS + 1] += the sums over `batch` matrices d[m, n]. */
template <typename T>
__global__ void __launch_bounds__(BLOCK)
    checksum_kernel(double *to, const T *d, int64_t m, int64_t n, int64_t ld, int64_t stride,
                    int64_t batch)
{
    double sums[CHECKSUM_SIGNS + 1] = {};
    int64_t step = (int64_t)gridDim.x * BLOCK;

    for (int64_t i = (int64_t)blockIdx.x * BLOCK + threadIdx.x; i < batch * m * n; i += step) {
        double x = (double)cuda_to_f32(d[i / n / m * stride + i / n % m * ld + i % n]);
        uint32_t signs = signs_of(i);

#pragma unroll
        for (int s = 0; s < CHECKSUM_SIGNS; s++)
            sums[s] += signs >> s & 1 ? x : -x;
        sums[CHECKSUM_SIGNS] += x * x;
    }
#pragma unroll
    for (int s = 0; s <= CHECKSUM_SIGNS; s++) {
        double sum = cuda_block_sum(sums[s]);

        if (threadIdx.x == 0)
            atomicAdd(&to[s], sum);
    }
}

template <typename T> static void sum_up(struct device *dev, const struct matmul_call *x)
{
    struct cuda_device *d = cuda_of(dev);
    const struct matmul_args *a = &x->args;
    int64_t batch = a->batch > 1 ? a->batch : 1, most = 8 * d->sms;
    int64_t blocks = cuda_blocks(batch * a->m * a->n, BLOCK);

    checksum_kernel<T><<<(unsigned)(blocks < most ? blocks : most), BLOCK, 0, d->stream>>>(
        d->matmul->checksum, (const T *)x->pd, a->m, a->n, a->ldd, a->stride_d, batch);
    cuda_launched(dev, a->op);
}

bool matmul_probe(struct device *dev, const struct matmul_call *x,
                  const cublasLtMatmulAlgo_t *algo, struct checksum *to)
{
    struct cuda_device *d = cuda_of(dev);

    if (x->work)
        cudaMemsetAsync(dev->work, GARBAGE, x->work, d->stream);
    cudaMemsetAsync(d->matmul->checksum, 0, sizeof *to, d->stream);
    if (matmul_launch(dev, x, algo) != CUBLAS_STATUS_SUCCESS)
        return false;
    switch (x->args.out) {
    case CKPT_BF16: sum_up<__nv_bfloat16>(dev, x); break;
    case CKPT_F16: sum_up<__half>(dev, x); break;
    default: sum_up<float>(dev, x);
    }
    return dev->err.code == 0 &&
           cudaMemcpyAsync(to, d->matmul->checksum, sizeof *to, cudaMemcpyDefault, d->stream) ==
               cudaSuccess &&
           cudaStreamSynchronize(d->stream) == cudaSuccess;
}

bool matmul_checksum_close(const struct checksum *x, const struct checksum *y, bool fast)
{
    double norm = sqrt(x->sum[CHECKSUM_SIGNS]), bound = norm / (fast ? 32 : 256);

    if (!isfinite(norm))
        return !isfinite(y->sum[CHECKSUM_SIGNS]);
    for (int s = 0; s < CHECKSUM_SIGNS; s++)
        if (!(fabs(x->sum[s] - y->sum[s]) <= bound))
            return false;
    return fabs(sqrt(y->sum[CHECKSUM_SIGNS]) - norm) <= bound;
}
