/*
 * adamw - one step of AdamW, SGD or Lion over runs of elements, and the verdict that it waits for.
 *
 * Order of operations is torch's (torch/optim/adamw.py, _single_tensor_adamw, 2.x):
 *   p -= lr wd p;  m += (g - m)(1 - b1);  v = b2 v + (1 - b2) g g
 *   p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)
 * and bitsandbytes' too (backends/cpu/ops.py; its CUDA kernels decay last, which differs by
 * lr^2 wd).  Scalars are computed in f64 as Python does and rounded to f32 once.  Moments of
 * elements that get no gradient any more decay to 0, not to numbers without a full mantissa
 * (cpu_flush).
 */
#include "trainer/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "libckpt/convert.h"
#include "trainer/ops/verdict.h"
#include "trainer/philox.h"

#define CHUNK 16384             /* elements a thread takes at once: four arrays stay in L2 */
#define BLOCK OP_MOMENTS_BLOCK  /* of moments that are narrower: those that are f32 at once */

/* Of a step; the last ones of a run. */
struct scalars {
    float one_minus_b1, b1, b2, one_minus_b2, inv_bc2, eps, grad_scale;
    float momentum, fresh;              /* SGD: of the moment, and of the gradient in it */
    bool  nesterov;
    float step_size, keep, decay;       /* keep: 1 - lr wd; decay: wd */
};

CPU_HOT static void update(float *restrict p, float *restrict m, float *restrict v,
                           const float *restrict grad, int64_t n, const struct scalars *s)
{
    const struct scalars c = *s;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale;
        float mi = m[i] + (g - m[i]) * c.one_minus_b1;
        float vi = v[i] * c.b2 + c.one_minus_b2 * g * g;

        m[i] = mi;
        v[i] = vi;
        p[i] = p[i] * c.keep - c.step_size * mi / (sqrtf(vi) * c.inv_bc2 + c.eps);
    }
}

/* m NULL: without momentum. */
CPU_HOT static void update_sgd(float *restrict p, float *restrict m, const float *restrict grad,
                               int64_t n, const struct scalars *s)
{
    const struct scalars c = *s;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale + c.decay * p[i], b = g;

        if (m) {
            b = c.momentum * m[i] + c.fresh * g;
            m[i] = b;
            b = c.nesterov ? g + c.momentum * b : b;
        }
        p[i] = p[i] - c.step_size * b;
    }
}

CPU_HOT static void update_lion(float *restrict p, float *restrict m, const float *restrict grad,
                                int64_t n, const struct scalars *s)
{
    const struct scalars c = *s;

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] * c.grad_scale, u = c.b1 * m[i] + c.one_minus_b1 * g;
        float way = u > 0 ? c.step_size : u < 0 ? -c.step_size : 0;

        p[i] = p[i] * c.keep - way;
        m[i] = c.b2 * m[i] + c.one_minus_b2 * g;
    }
}

static void update_by(enum op_rule rule, float *p, float *m, float *v, const float *grad, int64_t n,
                      const struct scalars *s)
{
    if (rule == OP_RULE_SGD)
        update_sgd(p, m, grad, n, s);
    else if (m && rule == OP_RULE_LION)
        update_lion(p, m, grad, n, s);
    else if (m && v)
        update(p, m, v, grad, n, s);
}

/* A run's scalars: doubles until they are rounded once. */
static struct scalars scalars_of(const struct scalars *step, const struct adamw_run *r,
                                 const struct adamw *a)
{
    struct scalars s = *step;
    double lr = r->lr ? *r->lr : a->lr;

    s.step_size = (float)(a->rule == OP_RULE_ADAMW ? lr / (1.0 - pow(a->beta1, (double)a->step))
                                                   : lr);
    s.keep = (float)(1.0 - lr * r->weight_decay);
    s.decay = (float)r->weight_decay;
    return s;
}

/* n <= BLOCK values to bf16, up or down with the odds of what is cut off; from element e on. */
static void narrow_by_chance(uint16_t *to, const float *from, int64_t n, uint64_t key,
                             int64_t step, uint64_t e)
{
    uint32_t word[4];

    for (int64_t i = 0; i < n; i++, e++) {
        uint32_t bits;

        if (i == 0 || e % 8 == 0)
            philox(word, key, (uint64_t)step, e / 8);
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (uint16_t)((bits + (word[e % 8 / 2] >> (e % 2 * 16) & 0xffff)) >> 16);
    }
}

/* What n <= BLOCK elements from place `at` of a run are in f32. */
static void widen(const struct cpu_device *cpu, float *m, float *v, const struct adamw_run *r,
                  int64_t at, int64_t n)
{
    const uint8_t *code = (const uint8_t *)r->exp_avg + at;
    const uint8_t *code_sq = r->exp_avg_sq ? (const uint8_t *)r->exp_avg_sq + at : NULL;

    if (r->moments == OP_MOMENTS_BF16) {
        ckpt_convert(m, CKPT_F32, (const uint16_t *)r->exp_avg + at, CKPT_BF16, (size_t)n);
        if (r->exp_avg_sq)
            ckpt_convert(v, CKPT_F32, (const uint16_t *)r->exp_avg_sq + at, CKPT_BF16, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        m[i] = cpu->codec[0].map[code[i]] * r->absmax[at / BLOCK];
        if (r->exp_avg_sq)
            v[i] = cpu->codec[1].map[code_sq[i]] * r->absmax_sq[at / BLOCK];
    }
}

/* A block as codes; returns its absmax.  Sizes are multiplied by 1 / absmax, as on a GPU. */
static float encode(uint8_t *code, const float *x, int64_t n, const struct bnb_codec *c)
{
    float most = 0, inv;

    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    most = most < 0x1p-126f ? 0 : most;         /* 1 / most is finite */
    inv = most > 0 ? 1 / most : 0;
    for (int64_t i = 0; i < n; i++)
        code[i] = bnb_code(c, x[i] * inv);
    return most;
}

static void narrow(const struct cpu_device *cpu, const struct adamw_run *r, int64_t at, int64_t n,
                   const float *m, const float *v, const struct adamw *a)
{
    if (r->moments == OP_MOMENTS_BF16) {
        ckpt_convert((uint16_t *)r->exp_avg + at, CKPT_BF16, m, CKPT_F32, (size_t)n);
        if (r->exp_avg_sq)
            narrow_by_chance((uint16_t *)r->exp_avg_sq + at, v, n, a->seed, a->step,
                             r->index + (uint64_t)at);
        return;
    }
    r->absmax[at / BLOCK] = encode((uint8_t *)r->exp_avg + at, m, n, &cpu->codec[0]);
    if (r->exp_avg_sq)
        r->absmax_sq[at / BLOCK] = encode((uint8_t *)r->exp_avg_sq + at, v, n, &cpu->codec[1]);
}

/* The same of weights that are bfloat16 alone: an infinity or NaN would be none after a chance. */
static void step_narrow(const struct cpu_device *cpu, const struct adamw_run *r, int64_t at,
                        int64_t n, const struct scalars *s, const struct adamw *a)
{
    bool wide = r->moments == OP_MOMENTS_F32;

    for (int64_t i = at; i < at + n; i += BLOCK) {
        int64_t some = at + n - i < BLOCK ? at + n - i : BLOCK;
        uint16_t *w = (uint16_t *)r->rounded + i;
        float p[BLOCK], m[BLOCK], v[BLOCK] = {0};

        ckpt_convert(p, CKPT_F32, w, CKPT_BF16, (size_t)some);
        if (!wide)
            widen(cpu, m, v, r, i, some);
        update_by(a->rule, p, !wide ? m : r->exp_avg ? (float *)r->exp_avg + i : NULL,
                  !wide ? v : r->exp_avg_sq ? (float *)r->exp_avg_sq + i : NULL, r->grad + i, some,
                  s);
        if (!wide)
            narrow(cpu, r, i, some, m, v, a);
        narrow_by_chance(w, p, some, a->seed ^ OP_WEIGHT_BITS, a->step, r->index + (uint64_t)i);
    }
}

/* Elements [at, at + n) of a run; at is a multiple of BLOCK. */
static void step_some(struct device *dev, const struct adamw_run *r, int64_t at, int64_t n,
                      const struct scalars *step, const struct adamw *a)
{
    const struct cpu_device *cpu = (const struct cpu_device *)dev;
    struct scalars s = scalars_of(step, r, a);
    float *m32 = r->exp_avg, *v32 = r->exp_avg_sq;
    size_t wide = ckpt_dtype_size(dev->weight);

    if (!r->param) {
        step_narrow(cpu, r, at, n, &s, a);
        return;
    }
    if (r->moments == OP_MOMENTS_F32)
        update_by(a->rule, r->param + at, m32 ? m32 + at : NULL, v32 ? v32 + at : NULL,
                  r->grad + at, n, &s);
    for (int64_t i = at; r->moments != OP_MOMENTS_F32 && i < at + n; i += BLOCK) {
        int64_t some = at + n - i < BLOCK ? at + n - i : BLOCK;
        float m[BLOCK], v[BLOCK] = {0};

        widen(cpu, m, v, r, i, some);
        update_by(a->rule, r->param + i, m, v, r->grad + i, some, &s);
        narrow(cpu, r, i, some, m, v, a);
    }
    if (r->rounded)
        ckpt_convert((unsigned char *)r->rounded + (size_t)at * wide, dev->weight, r->param + at,
                     CKPT_F32, (size_t)n);
}

/* Chunks [begin, end) of all runs' chunks. */
static void step_chunks(struct device *dev, const struct adamw_run *run, int64_t n_run,
                        int64_t begin, int64_t end, const struct scalars *s, const struct adamw *a)
{
    for (int64_t i = 0, first = 0; i < n_run && first < end; i++) {
        int64_t chunks = (run[i].n + CHUNK - 1) / CHUNK;
        int64_t from = begin > first ? begin - first : 0;
        int64_t to = end - first < chunks ? end - first : chunks;

        for (int64_t c = from; c < to; c++)
            step_some(dev, &run[i], c * CHUNK,
                      run[i].n - c * CHUNK < CHUNK ? run[i].n - c * CHUNK : CHUNK, s, a);
        first += chunks;
    }
}

void cpu_adamw(struct device *dev, const struct adamw_run *run, int64_t n_run,
               const struct adamw *a)
{
    double t = (double)a->step;
    const struct scalars s = {
        .one_minus_b1 = (float)(1.0 - a->beta1), .b1 = (float)a->beta1,
        .b2 = (float)a->beta2, .one_minus_b2 = (float)(1.0 - a->beta2),
        .inv_bc2 = (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))),
        .eps = (float)a->eps, .nesterov = a->nesterov,
        .momentum = (float)a->momentum,         /* times 0 in the first step */
        .fresh = a->step > 1 ? (float)(1.0 - a->dampening) : 1,
        .grad_scale = a->verdict ? a->verdict->factor : (float)a->grad_scale,
    };
    int64_t chunks = 0, n = 0;

    if (dev->err.code || (a->verdict && !a->verdict->finite))
        return;
    for (int64_t i = 0; i < n_run; i++) {
        chunks += (run[i].n + CHUNK - 1) / CHUNK;
        n += run[i].n;
    }
#pragma omp parallel num_threads(cpu_threads(dev, 8 * n))
    {
        unsigned was = cpu_flush();
        int64_t begin, end;

        cpu_range(&begin, &end, chunks, 1, omp_get_thread_num(), omp_get_num_threads());
        step_chunks(dev, run, n_run, begin, end, &s, a);
        cpu_flush_end(was);
    }
}

void cpu_judge(struct device *dev, struct op_verdict *verdict, const double *sum, double max_norm,
               double scale)
{
    if (dev->err.code == 0)
        *verdict = verdict_of(*sum, max_norm, scale);
}
