/*
 * adamw - one AdamW step over many runs of elements, one launch for each kind of moments.
 *
 * The order of operations is that of trainer/cpu/adamw.c, which is torch's; scalars are
 * computed in f64 and rounded to f32 once, here as there.  Runs are passed by value, as a
 * parameter of the kernel; a block finds its run by the number of its tile.  All data is read
 * once and is large, so it bypasses the caches (.cs).
 *
 * F32 and BF16: four elements move at once where a run's arrays have the same alignment within
 * 16 bytes; elements before the first such place of a tile and after the last go one by one.
 * 8BIT: a warp takes 256 elements that share an absmax, eight a lane, so that lanes exchange
 * only a maximum.  Tables lie in shared memory; blocks stay for many tiles.
 */
#include "trainer/cuda/chance.cuh"

extern "C" {
#include "formats/bnb/codes.h"
}

#include <math.h>

namespace {

const int block = 256;
const int tile = 16 * block;            /* elements: 16 for each thread */
const int resident = 4;                 /* blocks of step_8bit on an SM, enough to hide
                                           reading its tables */
const int most_runs = 256;        /* runs in one launch: 23 of the 32 KB that parameters may take */

struct scalars {
    float one_minus_b1, b2, one_minus_b2, inv_bc2, eps, grad_scale;
    struct chance moments, weights;
    const struct op_verdict *verdict;
};

struct run {
    float       *p;
    void        *m, *v, *w;
    float       *absmax, *absmax_sq;
    const float *g;
    int64_t      n;
    uint64_t     index;
    float        keep, step_size;
};

struct table {
    int32_t    n;
    uint32_t   first[most_runs + 1];    /* tiles of the runs before each */
    struct run run[most_runs];
};

__device__ __forceinline__ void update(float &p, float &m, float &v, float grad,
                                       const struct run &r, const struct scalars &c, float scale)
{
    float g = grad * scale;

    m = m + (g - m) * c.one_minus_b1;
    v = v * c.b2 + c.one_minus_b2 * g * g;
    p = p * r.keep - r.step_size * m / (sqrtf(v) * c.inv_bc2 + c.eps);
}

/* -- moments of one type ---------------------------------------------------------------------- */

__device__ __forceinline__ void load4(float x[4], const float *at)
{
    float4 v = __ldcs((const float4 *)at);

    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}

__device__ __forceinline__ void load4(float x[4], const __nv_bfloat16 *at)
{
    uint2 v = __ldcs((const uint2 *)at);

    x[0] = __uint_as_float(v.x << 16);
    x[1] = __uint_as_float(v.x & 0xffff0000u);
    x[2] = __uint_as_float(v.y << 16);
    x[3] = __uint_as_float(v.y & 0xffff0000u);
}

__device__ __forceinline__ void store4(float *at, const float x[4])
{
    __stcs((float4 *)at, make_float4(x[0], x[1], x[2], x[3]));
}

/* Round to T: the copy of the weights. */
template <typename T> __device__ __forceinline__ void round4(T *at, const float x[4], bool whole)
{
    cuda_pack<T, 4> four = {{cuda_from_f32<T>(x[0]), cuda_from_f32<T>(x[1]),
                             cuda_from_f32<T>(x[2]), cuda_from_f32<T>(x[3])}};

    if (whole)
        *(cuda_pack<T, 4> *)at = four;
    else
        for (int k = 0; k < 4; k++)
            at[k] = four.at[k];
}

__device__ __forceinline__ void keep4(float *m, float *v, const float x[4], const float y[4],
                                      const struct scalars &, uint64_t)
{
    store4(m, x);
    store4(v, y);
}

__device__ __forceinline__ void keep4(__nv_bfloat16 *m, __nv_bfloat16 *v, const float x[4],
                                      const float y[4], const struct scalars &c, uint64_t e)
{
    chance_store4(v, y, c.moments, e);
    round4(m, x, true);
}

__device__ __forceinline__ void keep1(float *m, float *v, float x, float y,
                                      const struct scalars &, uint64_t)
{
    *m = x;
    *v = y;
}

__device__ __forceinline__ void keep1(__nv_bfloat16 *m, __nv_bfloat16 *v, float x, float y,
                                      const struct scalars &c, uint64_t e)
{
    *m = cuda_from_f32<__nv_bfloat16>(x);
    chance_store(v, y, c.moments, e);
}

/* -- kernels ---------------------------------------------------------------------------------- */

/* The run that a tile belongs to. */
__device__ __forceinline__ int run_of(const struct table &t, uint32_t number)
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

/* Elements until p is aligned to 16 bytes, or where there is none g; 4 where the other arrays are
 * not aligned likewise: then no four are moved at once. */
template <typename M, bool NARROW> __device__ __forceinline__ int lead_of(const struct run &r)
{
    uintptr_t first = NARROW ? (uintptr_t)r.g : (uintptr_t)r.p;
    int lead = (int)((16 - first % 16) % 16 / sizeof(float));
    uintptr_t moments = (uintptr_t)((M *)r.m + lead) | (uintptr_t)((M *)r.v + lead);
    bool alike = NARROW ? (uintptr_t)((__nv_bfloat16 *)r.w + lead) % 8 == 0
                        : (uintptr_t)(r.g + lead) % 16 == 0;

    return moments % (4 * sizeof(M)) == 0 && alike ? lead : 4;
}

/* Weights: f32, or NARROW: bf16 alone, rounded by chance; the copy is what is rounded then. */
template <bool NARROW>
__device__ __forceinline__ float weight_of(const struct run &r, int64_t i)
{
    return NARROW ? cuda_to_f32(((const __nv_bfloat16 *)r.w)[i]) : r.p[i];
}

template <typename T, bool NARROW>
__device__ __forceinline__ void keep_weight(const struct run &r, int64_t i, float p,
                                            const struct scalars &c)
{
    if (NARROW) {
        chance_store((__nv_bfloat16 *)r.w + i, p, c.weights, r.index + (uint64_t)i);
        return;
    }
    r.p[i] = p;
    if (r.w)
        ((T *)r.w)[i] = cuda_from_f32<T>(p);
}

/* The same of four, whose copy is aligned where `whole`. */
template <bool NARROW>
__device__ __forceinline__ void weights_of(float p[4], const struct run &r, int64_t i)
{
    if (NARROW)
        load4(p, (const __nv_bfloat16 *)r.w + i);
    else
        load4(p, r.p + i);
}

template <typename T, bool NARROW>
__device__ __forceinline__ void keep_weights(const struct run &r, int64_t i, const float p[4],
                                             bool whole, const struct scalars &c)
{
    if (NARROW) {
        chance_store4((__nv_bfloat16 *)r.w + i, p, c.weights, r.index + (uint64_t)i);
        return;
    }
    if (r.w)
        round4((T *)r.w + i, p, whole);
    store4(r.p + i, p);
}

template <typename T, typename M, bool NARROW>
__device__ __forceinline__ void step_one(const struct run &r, int64_t i, const struct scalars &c,
                                         float scale)
{
    M *m = (M *)r.m + i, *v = (M *)r.v + i;
    float p = weight_of<NARROW>(r, i), x = cuda_to_f32(*m), y = cuda_to_f32(*v);

    update(p, x, y, r.g[i], r, c, scale);
    keep1(m, v, x, y, c, r.index + (uint64_t)i);
    keep_weight<T, NARROW>(r, i, p, c);
}

template <typename T, typename M, bool NARROW>
__global__ void __launch_bounds__(block)
step(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, c))
{
    const struct run &r = t.run[run_of(t, blockIdx.x)];
    int64_t begin = (int64_t)(blockIdx.x - t.first[&r - t.run]) * tile;
    int64_t end = begin + tile < r.n ? begin + tile : r.n;
    int lead = lead_of<M, NARROW>(r), quads = lead < 4 ? (int)((end - begin - lead) / 4) : 0;
    float scale = c.grad_scale;
    bool whole;

    if (c.verdict) {
        if (!c.verdict->finite)
            return;
        scale = c.verdict->factor;
    }
    if (quads <= 0) {
        for (int64_t i = begin + threadIdx.x; i < end; i += block)
            step_one<T, M, NARROW>(r, i, c, scale);
        return;
    }
    if ((int)threadIdx.x < lead)
        step_one<T, M, NARROW>(r, begin + threadIdx.x, c, scale);
    if (begin + lead + 4 * quads + (int)threadIdx.x < end)
        step_one<T, M, NARROW>(r, begin + lead + 4 * quads + threadIdx.x, c, scale);
    whole = (uintptr_t)((T *)r.w + lead) % (4 * sizeof(T)) == 0;
    begin += lead;
#pragma unroll 2
    for (int q = (int)threadIdx.x; q < quads; q += block) {
        int64_t i = begin + 4 * q;
        float p[4], m[4], v[4], g[4];

        weights_of<NARROW>(p, r, i);
        load4(m, (const M *)r.m + i);
        load4(v, (const M *)r.v + i);
        load4(g, r.g + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            update(p[k], m[k], v[k], g[k], r, c, scale);
        keep_weights<T, NARROW>(r, i, p, whole, c);
        keep4((M *)r.m + i, (M *)r.v + i, m, v, c, r.index + (uint64_t)i);
    }
}

/* Eight elements of a block of 256: quads lane and lane + 32, or, for unaligned arrays or an
 * incomplete block, every 32nd. */
struct eight {
    float    p[8], g[8];
    uint32_t m[2], v[2];                /* codes, the first in the lowest byte */
};

/* The position in the block of a lane's k-th element. */
__device__ __forceinline__ int place(bool quads, int k, int lane)
{
    return quads ? 4 * (lane + k / 4 * 32) + k % 4 : lane + 32 * k;
}

template <bool NARROW>
__device__ __forceinline__ void load8(struct eight &a, const struct run &r, int64_t at, int count,
                                      bool quads, int lane)
{
    const uint8_t *m = (const uint8_t *)r.m + at, *v = (const uint8_t *)r.v + at;

    if (quads) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            int q = lane + 32 * j;

            weights_of<NARROW>(a.p + 4 * j, r, at + 4 * q);
            load4(a.g + 4 * j, r.g + at + 4 * q);
            a.m[j] = __ldcs((const uint32_t *)m + q);
            a.v[j] = __ldcs((const uint32_t *)v + q);
        }
        return;
    }
    a.m[0] = a.m[1] = a.v[0] = a.v[1] = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int i = lane + 32 * k;
        bool in = i < count;

        a.p[k] = in ? weight_of<NARROW>(r, at + i) : 0;
        a.g[k] = in ? r.g[at + i] : 0;
        a.m[k / 4] |= (in ? (uint32_t)m[i] : 0) << (k % 4 * 8);
        a.v[k / 4] |= (in ? (uint32_t)v[i] : 0) << (k % 4 * 8);
    }
}

template <typename T, bool NARROW>
__device__ __forceinline__ void store8(const struct eight &a, const struct run &r, int64_t at,
                                       int count, bool quads, int lane, const struct scalars &c)
{
    uint8_t *m = (uint8_t *)r.m + at, *v = (uint8_t *)r.v + at;

    if (quads) {
        bool whole = (uintptr_t)((T *)r.w + at) % (4 * sizeof(T)) == 0;

#pragma unroll
        for (int j = 0; j < 2; j++) {
            int q = lane + 32 * j;

            __stcs((uint32_t *)m + q, a.m[j]);
            __stcs((uint32_t *)v + q, a.v[j]);
            keep_weights<T, NARROW>(r, at + 4 * q, a.p + 4 * j, whole, c);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
        int i = lane + 32 * k;

        if (i >= count)
            continue;
        m[i] = (uint8_t)(a.m[k / 4] >> (k % 4 * 8));
        v[i] = (uint8_t)(a.v[k / 4] >> (k % 4 * 8));
        keep_weight<T, NARROW>(r, at + i, a.p[k], c);
    }
}

/* The largest of a warp's magnitudes, 0 if it is denormal. */
__device__ __forceinline__ float largest(const float x[8])
{
    float most = 0;

#pragma unroll
    for (int k = 0; k < 8; k++)
        most = fmaxf(most, fabsf(x[k]));
    /* non-negative floats are ordered like their bits */
    most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
    return most < 0x1p-126f ? 0 : most;
}

/*
 * bnb_code without its integer arithmetic, which would slow this kernel down: magnitudes are at
 * most a few ulp above 1, second moments have no sign.
 */
__device__ __forceinline__ float border_of(uint32_t &size, const struct bnb_codec &c, float x)
{
    int cell = (int)(__float_as_uint(fmaxf(x, 0x1p-23f)) >> (23 - BNB_CELL_BITS)) - BNB_CELL_BASE;

    size = c.cell[cell];
    return c.border[size];
}

__device__ __forceinline__ uint32_t code_of(const struct bnb_codec &c, float x)
{
    uint32_t size;
    float border = border_of(size, c, x);

    return size + (x >= border);
}

__device__ __forceinline__ uint32_t signed_code_of(const struct bnb_codec &c, float x)
{
    uint32_t size;
    float border = border_of(size, c, fabsf(x));

    if (x >= 0)
        return 127 + size + (x >= border);
    size += -x > border;
    return x < 0 ? 127 - min(max(size, 1u), 127u) : 127;
}

template <bool with_sign>
__device__ __forceinline__ void encode8(uint32_t code[2], const float x[8], float most,
                                        const struct bnb_codec &c)
{
    float inv = most > 0 ? 1 / most : 0;

    code[0] = code[1] = 0;
#pragma unroll
    for (int k = 0; k < 8; k++)
        code[k / 4] |= (with_sign ? signed_code_of(c, x[k] * inv) : code_of(c, x[k] * inv))
                       << (k % 4 * 8);
}

/* As update, except for the last bits of a quotient, which 8-bit moments do not need. */
__device__ __forceinline__ void update_roughly(float &p, float &m, float &v, float grad,
                                               const struct run &r, const struct scalars &c,
                                               float scale)
{
    float g = grad * scale, root;

    m = m + (g - m) * c.one_minus_b1;
    v = v * c.b2 + c.one_minus_b2 * g * g;
    root = cuda_sqrt_roughly(v);
    p = p * r.keep - __fdividef(r.step_size * m, root * c.inv_bc2 + c.eps);
}

template <typename T, bool NARROW>
__device__ __forceinline__ void step_block(const struct run &r, int64_t at,
                                           const struct bnb_codec *codec, const struct scalars &c,
                                           float scale)
{
    int lane = (int)threadIdx.x % 32, count = r.n - at < BNB_BLOCK ? (int)(r.n - at) : BNB_BLOCK;
    bool quads = count == BNB_BLOCK && ((uintptr_t)r.p | (uintptr_t)r.g) % 16 == 0 &&
                 ((uintptr_t)r.m | (uintptr_t)r.v) % 4 == 0 &&
                 (!NARROW || (uintptr_t)r.w % 8 == 0);
    float one = r.absmax[at / BNB_BLOCK], two = r.absmax_sq[at / BNB_BLOCK], m[8], v[8];
    struct eight a;

    load8<NARROW>(a, r, at, count, quads, lane);
#pragma unroll
    for (int k = 0; k < 8; k++) {
        m[k] = codec[0].map[a.m[k / 4] >> (k % 4 * 8) & 255] * one;
        v[k] = codec[1].map[a.v[k / 4] >> (k % 4 * 8) & 255] * two;
        update_roughly(a.p[k], m[k], v[k], a.g[k], r, c, scale);
        if (place(quads, k, lane) >= count)
            m[k] = v[k] = 0;            /* must not influence the block's largest */
    }
    one = largest(m);
    two = largest(v);
    encode8<true>(a.m, m, one, codec[0]);
    encode8<false>(a.v, v, two, codec[1]);
    store8<T, NARROW>(a, r, at, count, quads, lane, c);
    if (lane == 0) {
        r.absmax[at / BNB_BLOCK] = one;
        r.absmax_sq[at / BNB_BLOCK] = two;
    }
}

template <typename T, bool NARROW>
__global__ void __launch_bounds__(block, resident)
step_8bit(CUDA_PARAM(struct table, t), CUDA_PARAM(struct scalars, c),
          const struct bnb_codec *tables, uint32_t tiles)
{
    __shared__ struct bnb_codec codec[2];
    float scale = c.grad_scale;
    int at = 0, warp = (int)threadIdx.x / 32;

    static_assert(sizeof codec % sizeof(uint32_t) == 0, "copied by words");
    if (c.verdict) {
        if (!c.verdict->finite)
            return;
        scale = c.verdict->factor;
    }
    for (int i = (int)threadIdx.x; i < (int)(sizeof codec / sizeof(uint32_t)); i += block)
        ((uint32_t *)codec)[i] = ((const uint32_t *)tables)[i];
    __syncthreads();
    for (uint32_t number = blockIdx.x; number < tiles; number += gridDim.x) {
        int64_t begin, end;

        while (number >= t.first[at + 1])
            at++;
        begin = (int64_t)(number - t.first[at]) * tile;
        end = begin + tile < t.run[at].n ? begin + tile : t.run[at].n;
        for (int64_t i = begin + warp * BNB_BLOCK; i < end; i += block / 32 * BNB_BLOCK)
            step_block<T, NARROW>(t.run[at], i, codec, c, scale);
    }
}

/* -- launching -------------------------------------------------------------------------------- */

template <typename T, bool NARROW>
void launch(struct cuda_device *d, enum op_moments moments, const struct table *t,
            const struct scalars *s)
{
    uint32_t tiles = t->first[t->n], stay = (uint32_t)(d->sms * resident);

    if (moments == OP_MOMENTS_8BIT)
        cuda_launch(d->stream, step_8bit<T, NARROW>, tiles < stay ? tiles : stay, block, *t, *s,
                    d->codec, tiles);
    else if (moments == OP_MOMENTS_BF16)
        cuda_launch(d->stream, step<T, __nv_bfloat16, NARROW>, tiles, block, *t, *s);
    else
        cuda_launch(d->stream, step<T, float, NARROW>, tiles, block, *t, *s);
}

/* Launch the runs of one kind of moments, with f32 weights or without, with as many launches as
 * their number needs. */
void step_kind(struct device *dev, enum op_moments moments, bool narrow,
               const struct adamw_run *run, int64_t n_run, const struct adamw *a,
               const struct scalars *s)
{
    struct table t;

    t.n = 0;
    t.first[0] = 0;
    for (int64_t i = 0; i < n_run; i++) {
        const struct adamw_run *r = &run[i];
        double lr = r->lr ? *r->lr : a->lr;

        if (r->moments == moments && !r->param == narrow && r->n > 0) {
            t.run[t.n] = {r->param, r->exp_avg, r->exp_avg_sq, r->rounded, r->absmax, r->absmax_sq,
                          r->grad, r->n, r->index,
                          (float)(1.0 - lr * r->weight_decay),
                          (float)(lr / (1.0 - pow(a->beta1, (double)a->step)))};
            t.first[t.n + 1] = t.first[t.n] + (uint32_t)cuda_blocks(r->n, tile);
            t.n++;
        }
        if (t.n > 0 && (t.n == most_runs || i + 1 == n_run)) {
            if (narrow)
                launch<__nv_bfloat16, true>(cuda_of(dev), moments, &t, s);
            else
                CUDA_ACT(dev, launch<T, false>(cuda_of(dev), moments, &t, s));
            if (!cuda_launched(dev, "adamw"))
                return;
            t.n = 0;
        }
    }
}

} /* namespace */

void cuda_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
                const struct adamw *a)
{
    double t = (double)a->step;
    const struct scalars s = {
        (float)(1.0 - a->beta1), (float)a->beta2, (float)(1.0 - a->beta2),
        (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))),
        (float)a->eps, (float)a->grad_scale, {a->seed, (uint64_t)a->step},
        {a->seed ^ OP_WEIGHT_BITS, (uint64_t)a->step}, a->verdict,
    };

    if (a->rule != OP_RULE_ADAMW) {
        cuda_rules(dev, run, n_run, a);
        return;
    }
    for (int k = 2 * OP_MOMENTS_F32; k <= 2 * OP_MOMENTS_8BIT + 1 && dev->err.code == 0; k++)
        step_kind(dev, (enum op_moments)(k / 2), k % 2, run, n_run, a, &s);
}
