/*
 * optim - one AdamW step over a run of elements, and the sum of squares that clipping needs.
 *
 * The order of operations is that of trainer/cpu/adamw.c, which is torch's; scalars are computed
 * there and here in f64 and rounded to f32 once.  Four elements move at once: of four arrays that
 * lie alike within 16 bytes; what stands before the first such place and behind the last goes one
 * by one.  Everything is read once and is large: it passes the caches (.cs).
 *
 * Squares are summed in f64 by a fixed number of blocks, each over its own stripes, and the host
 * adds the blocks' sums in their order.
 */
#include "trainer/cuda/cuda.h"

#include <math.h>

namespace {

const int block = 256;
const int square_blocks = 1056, square_each = 4;

struct scalars {
    float keep, one_minus_b1, b2, one_minus_b2, step_size, inv_bc2, eps, grad_scale;
};

__device__ __forceinline__ void update(float &p, float &m, float &v, float grad,
                                       const struct scalars &c)
{
    float g = grad * c.grad_scale;

    m = m + (g - m) * c.one_minus_b1;
    v = v * c.b2 + c.one_minus_b2 * g * g;
    p = p * c.keep - c.step_size * m / (sqrtf(v) * c.inv_bc2 + c.eps);
}

/*
 * A step is many short runs: the next launch may take the places that blocks of this one leave,
 * and waits there until all that was launched before it is done.
 */
__device__ __forceinline__ void overlap()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Elements [0, lead) and [lead + 4 quads, n) one by one, by the block behind the others.  w, where
 * it is not NULL, takes the parameters rounded; whole: its fours lie at 8 bytes. */
template <typename T>
__global__ void __launch_bounds__(block)
step(float *p, float *m, float *v, const float *g, T *w, int64_t n, int64_t lead, int64_t quads,
     bool whole, struct scalars c)
{
    int64_t i = (int64_t)blockIdx.x * block + threadIdx.x;

    overlap();
    if (i < quads) {
        float4 pi = __ldcs((float4 *)(p + lead) + i), mi = __ldcs((float4 *)(m + lead) + i);
        float4 vi = __ldcs((float4 *)(v + lead) + i), gi = __ldcs((const float4 *)(g + lead) + i);

        update(pi.x, mi.x, vi.x, gi.x, c);
        update(pi.y, mi.y, vi.y, gi.y, c);
        update(pi.z, mi.z, vi.z, gi.z, c);
        update(pi.w, mi.w, vi.w, gi.w, c);
        if (w) {
            T *to = w + lead + 4 * i;
            cuda_pack<T, 4> four = {{from_f32<T>(pi.x), from_f32<T>(pi.y), from_f32<T>(pi.z),
                                     from_f32<T>(pi.w)}};

            if (whole)
                *(cuda_pack<T, 4> *)to = four;
            else
                for (int k = 0; k < 4; k++)
                    to[k] = four.at[k];
        }
        __stcs((float4 *)(p + lead) + i, pi);
        __stcs((float4 *)(m + lead) + i, mi);
        __stcs((float4 *)(v + lead) + i, vi);
        return;
    }
    i -= quads;                         /* of the elements that are not in fours */
    i = i < lead ? i : i + 4 * quads;
    if (i < n) {
        update(p[i], m[i], v[i], g[i], c);
        if (w)
            w[i] = from_f32<T>(p[i]);
    }
}

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
    sum[0] = block_sum(sum[0]);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum[0];
}

/* Elements before the first that is aligned to 16 bytes, at most n. */
int64_t lead_of(const void *p, int64_t n)
{
    int64_t lead = (int64_t)((16 - (uintptr_t)p % 16) % 16 / sizeof(float));

    return lead < n ? lead : n;
}

} /* namespace */

/* None: what these need is the device's own. */
uint64_t cuda_optim_work(const struct device *dev, const struct op_limits *l)
{
    (void)dev;
    (void)l;
    return 0;
}

void cuda_adamw(struct device *dev, float *param, float *exp_avg, float *exp_avg_sq,
                const float *grad, int64_t n, const struct adamw *a)
{
    double t = (double)a->step;
    const struct scalars s = {
        (float)(1.0 - a->lr * a->weight_decay), (float)(1.0 - a->beta1), (float)a->beta2,
        (float)(1.0 - a->beta2), (float)(a->lr / (1.0 - pow(a->beta1, t))),
        (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))), (float)a->eps, (float)a->grad_scale,
    };
    int64_t lead = lead_of(param, n), quads = (n - lead) / 4;
    bool alike = lead_of(exp_avg, n) == lead && lead_of(exp_avg_sq, n) == lead &&
                 lead_of(grad, n) == lead;
    struct cuda_device *d = cuda_of(dev);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    int major = 0;

    if (dev->err.code || n <= 0 ||
        !cuda_ok(dev, "adamw", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor,
                                                      d->index)))
        return;
    if (!alike)
        lead = quads = 0;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3((unsigned)cuda_blocks(n - 3 * quads, block));
    config.blockDim = dim3(block);
    config.stream = d->stream;
    config.attrs = &early;
    config.numAttrs = major >= 9;       /* what older chips do not know */
    CUDA_ACT(dev, {
        T *w = (T *)a->rounded;

        if (!cuda_ok(dev, "adamw", cudaLaunchKernelEx(&config, step<T>, param, exp_avg, exp_avg_sq,
                                                      grad, w, n, lead, quads,
                                                      cuda_aligned(w + lead, 4 * sizeof(T)), s)))
            return;
    });
    cuda_launched(dev, "adamw");
}

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
