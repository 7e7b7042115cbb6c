/*
 * rules - steps of SGD and Lion: what adamw.cu does for AdamW, a launch for each run.
 *
 * Formulas and their order are those of trainer/cpu/adamw.c.  8BIT: a warp takes 256 elements that
 * share an absmax, eight a lane, as there.
 */
#include "trainer/cuda/chance.cuh"

extern "C" {
#include "formats/bnb/codes.h"
}

namespace {

const int block = 256, each = 4;        /* elements of a thread */

struct rule {
    float *p, *m, *absmax;              /* p NULL: w has the weights, bf16, and is rounded by
                                           chance; m NULL: SGD without momentum */
    void  *w;
    const float *g;
    int64_t n;
    float  b1, one_minus_b1, b2, one_minus_b2, momentum, fresh, step_size, keep, decay, grad_scale;
    bool   nesterov, lion;
    struct chance weights;
    uint64_t index;
    const struct op_verdict *verdict;
};

__device__ __forceinline__ void update(float &p, float &m, float grad, const struct rule &r,
                                       float scale)
{
    float g = grad * scale;

    if (r.lion) {
        float u = r.b1 * m + r.one_minus_b1 * g;

        p = p * r.keep - (u > 0 ? r.step_size : u < 0 ? -r.step_size : 0.0f);
        m = r.b2 * m + r.one_minus_b2 * g;
        return;
    }
    g += r.decay * p;
    m = r.momentum * m + r.fresh * g;
    p -= r.step_size * (!r.m ? g : r.nesterov ? g + r.momentum * m : m);
}

__device__ __forceinline__ float weight_of(const struct rule &r, int64_t i)
{
    return r.p ? r.p[i] : cuda_to_f32(((const __nv_bfloat16 *)r.w)[i]);
}

template <typename T>
__device__ __forceinline__ void keep_weight(const struct rule &r, int64_t i, float p)
{
    if (!r.p) {
        chance_store((__nv_bfloat16 *)r.w + i, p, r.weights, r.index + (uint64_t)i);
        return;
    }
    r.p[i] = p;
    if (r.w)
        ((T *)r.w)[i] = cuda_from_f32<T>(p);
}

/* The factor of gradients; false: nothing is stepped. */
__device__ __forceinline__ bool factor_of(float *scale, const struct rule &r)
{
    *scale = r.verdict ? r.verdict->factor : r.grad_scale;
    return !r.verdict || r.verdict->finite;
}

template <typename T>
__global__ void __launch_bounds__(block) step(CUDA_PARAM(struct rule, r))
{
    int64_t first = (int64_t)blockIdx.x * block * each + threadIdx.x;
    float scale;

    if (!factor_of(&scale, r))
        return;
#pragma unroll
    for (int k = 0; k < each; k++) {
        int64_t i = first + k * block;

        if (i < r.n) {
            float p = weight_of(r, i), m = r.m ? r.m[i] : 0.0f;

            update(p, m, r.g[i], r, scale);
            keep_weight<T>(r, i, p);
            if (r.m)
                r.m[i] = m;
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(block)
step_8bit(CUDA_PARAM(struct rule, r), const struct bnb_codec *codec)
{
    int64_t at = ((int64_t)blockIdx.x * (block / 32) + threadIdx.x / 32) * BNB_BLOCK;
    uint8_t *code = (uint8_t *)r.m + at;
    int lane = (int)threadIdx.x % 32;
    float scale, m[BNB_BLOCK / 32], most = 0, inv;

    if (!factor_of(&scale, r) || at >= r.n)
        return;
    for (int k = 0; k < BNB_BLOCK / 32; k++) {
        int i = lane + 32 * k;
        float p;

        m[k] = 0;
        if (at + i >= r.n)
            continue;
        p = weight_of(r, at + i);
        m[k] = codec->map[code[i]] * r.absmax[at / BNB_BLOCK];
        update(p, m[k], r.g[at + i], r, scale);
        keep_weight<T>(r, at + i, p);
        most = fmaxf(most, fabsf(m[k]));
    }
    most = cuda_warp_max(most);
    most = most < 0x1p-126f ? 0 : most;
    inv = most > 0 ? 1 / most : 0;
    for (int k = 0; k < BNB_BLOCK / 32; k++)
        if (at + lane + 32 * k < r.n)
            code[lane + 32 * k] = bnb_code(codec, m[k] * inv);
    __syncwarp();
    if (lane == 0)
        r.absmax[at / BNB_BLOCK] = most;
}

template <typename T>
void launch(struct cuda_device *d, enum op_moments moments, const struct rule *r)
{
    if (moments == OP_MOMENTS_8BIT)
        cuda_launch(d->stream, step_8bit<T>, cuda_blocks(r->n, BNB_BLOCK * (block / 32)), block, *r,
                    d->codec);
    else
        cuda_launch(d->stream, step<T>, cuda_blocks(r->n, block * each), block, *r);
}

} /* namespace */

void cuda_rules(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a)
{
    for (int64_t i = 0; i < n_run && dev->err.code == 0; i++) {
        const struct adamw_run *from = &run[i];
        double lr = from->lr ? *from->lr : a->lr;
        struct rule r = {};

        if (from->n <= 0)
            continue;
        r.p = from->param;
        r.m = (float *)from->exp_avg;
        r.absmax = from->absmax;
        r.w = from->rounded;
        r.g = from->grad;
        r.n = from->n;
        r.b1 = (float)a->beta1;
        r.one_minus_b1 = (float)(1.0 - a->beta1);
        r.b2 = (float)a->beta2;
        r.one_minus_b2 = (float)(1.0 - a->beta2);
        r.momentum = (float)a->momentum;
        r.fresh = a->step > 1 ? (float)(1.0 - a->dampening) : 1.0f;
        r.step_size = (float)lr;
        r.keep = (float)(1.0 - lr * from->weight_decay);
        r.decay = (float)from->weight_decay;
        r.grad_scale = (float)a->grad_scale;
        r.nesterov = a->nesterov;
        r.lion = a->rule == OP_RULE_LION;
        r.verdict = a->verdict;
        r.weights = {a->seed ^ OP_WEIGHT_BITS, (uint64_t)a->step};
        r.index = from->index;
        CUDA_ACT(dev, launch<T>(cuda_of(dev), from->moments, &r));
        cuda_launched(dev, "optimizer step");
    }
}
