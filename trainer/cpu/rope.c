/*
 * rope - rotate heads by position, after their norms if there are any; forward and back.
 *
 * Threads take rows.  Gradients of the norms' weights are summed per thread over its rows and
 * then over threads in their order.
 */
#include "trainer/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "trainer/cpu/typed.h"

/* y = x rotated; y may be x.  c, s: [half]. */
CPU_HOT static void rotate(float *y, const float *x, const float *restrict c,
                         const float *restrict s, int64_t half)
{
#pragma omp simd
    for (int64_t j = 0; j < half; j++) {
        float a = x[j], b = x[j + half];

        y[j] = a * c[j] - b * s[j];
        y[j + half] = b * c[j] + a * s[j];
    }
}

CPU_HOT static void rotate_back(float *g, const float *restrict c, const float *restrict s,
                                int64_t half)
{
#pragma omp simd
    for (int64_t j = 0; j < half; j++) {
        float a = g[j], b = g[j + half];

        g[j] = a * c[j] + b * s[j];
        g[j + half] = b * c[j] - a * s[j];
    }
}

/* out = x / rms * w; gives 1 / rms. */
CPU_HOT static float norm(float *restrict out, const float *restrict x, const float *restrict w,
                          int64_t d, float eps)
{
    float sq = 0, r;

#pragma omp simd reduction(+ : sq)
    for (int64_t j = 0; j < d; j++)
        sq += x[j] * x[j];
    r = 1.0f / sqrtf(sq / (float)d + eps);
#pragma omp simd
    for (int64_t j = 0; j < d; j++)
        out[j] = x[j] * r * w[j];
    return r;
}

/* g: gradient of out, becomes that of x; dw is added to. */
CPU_HOT static void norm_back(float *restrict g, float *restrict dw, const float *restrict x,
                              const float *restrict w, float r, int64_t d)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < d; j++) {
        dw[j] += g[j] * x[j] * r;
        sum += g[j] * w[j] * x[j] * r;
    }
    sum /= (float)d;
#pragma omp simd
    for (int64_t j = 0; j < d; j++)
        g[j] = r * (g[j] * w[j] - x[j] * r * sum);
}

/* One head of one row: x in, y out. */
static void head_fwd(const struct op_rope *a, float *y, const float *x, const float *w,
                     float *stat, int64_t row)
{
    int64_t half = a->rotary_dim / 2;
    const float *c = a->table ? a->table + a->positions[row] * a->rotary_dim : NULL;

    assert(stat || !w);
    if (w)
        *stat = norm(y, x, w, a->dim, a->eps);
    if (c)
        rotate(y, w ? y : x, c, c + half, half);
}

static void rows_fwd(const struct op_rope *a, int64_t begin, int64_t end)
{
    int64_t heads = a->n_head + a->n_kv, ld = a->in.row_stride, out_ld = a->out.row_stride;
    size_t bytes = (size_t)a->dim * sizeof(float);

    for (int64_t i = begin; i < end; i++) {
        float *stat = a->stats ? a->stats + i * heads : NULL;

        for (int64_t h = 0; h < a->n_head; h++)
            head_fwd(a, (float *)a->out.q + i * out_ld + h * a->out.q_head,
                     (float *)a->in.q + i * ld + h * a->in.q_head, a->q_norm,
                     stat ? stat + h : NULL, i);
        for (int64_t h = 0; h < a->n_kv; h++) {
            head_fwd(a, (float *)a->out.k + i * out_ld + h * a->out.kv_head,
                     (float *)a->in.k + i * ld + h * a->in.kv_head, a->k_norm,
                     stat ? stat + a->n_head + h : NULL, i);
            if (a->q_norm)
                memcpy((float *)a->out.v + i * out_ld + h * a->out.kv_head,
                       (float *)a->in.v + i * ld + h * a->in.kv_head, bytes);
        }
    }
}

/* The operation with the norms' weights converted to f32. */
static struct op_rope wide(struct device *dev, const struct op_rope *op)
{
    struct op_rope a = *op;

    a.q_norm = typed_vector(dev, 0, op->q_norm, op->dim);
    a.k_norm = typed_vector(dev, 1, op->k_norm, op->dim);
    return a;
}

static int threads_for(const struct device *dev, const struct op_rope *a)
{
    return cpu_threads(dev, 8 * a->n * (a->n_head + a->n_kv) * a->dim);
}

void cpu_rope_fwd(struct device *dev, const struct op_rope *op)
{
    struct op_rope typed = wide(dev, op), *a = &typed;

    if (dev->err.code)
        return;
#pragma omp parallel num_threads(threads_for(dev, a))
    {
        int64_t begin, end;

        cpu_range(&begin, &end, a->n, 1, omp_get_thread_num(), omp_get_num_threads());
        rows_fwd(a, begin, end);
    }
}

/* One head of one row: its gradient g, in place. */
static void head_bwd(const struct op_rope *a, float *g, float *dw, const float *x,
                     const float *w, const float *stat, int64_t row)
{
    int64_t half = a->rotary_dim / 2;
    const float *c = a->table ? a->table + a->positions[row] * a->rotary_dim : NULL;

    assert(stat || !w);
    if (c)
        rotate_back(g, c, c + half, half);
    if (w)
        norm_back(g, dw, x, w, *stat, a->dim);
}

/* dq, dk: the thread's own sums [d]. */
static void rows_bwd(const struct op_rope *a, float *dq, float *dk, int64_t begin, int64_t end)
{
    int64_t heads = a->n_head + a->n_kv, ld = a->in.row_stride;

    memset(dq, 0, (size_t)a->dim * sizeof *dq);
    memset(dk, 0, (size_t)a->dim * sizeof *dk);
    for (int64_t i = begin; i < end; i++) {
        const float *stat = a->stats ? a->stats + i * heads : NULL;

        for (int64_t h = 0; h < a->n_head; h++)
            head_bwd(a, (float *)a->grad.q + i * ld + h * a->grad.q_head, dq,
                     (float *)a->in.q + i * ld + h * a->in.q_head, a->q_norm,
                     stat ? stat + h : NULL, i);
        for (int64_t h = 0; h < a->n_kv; h++)
            head_bwd(a, (float *)a->grad.k + i * ld + h * a->grad.kv_head, dk,
                     (float *)a->in.k + i * ld + h * a->in.kv_head, a->k_norm,
                     stat ? stat + a->n_head + h : NULL, i);
    }
}

uint64_t cpu_rope_work(const struct device *dev, const struct op_limits *l)
{
    return l->train ? (uint64_t)dev->threads * 2 * (uint64_t)l->head_dim * sizeof(float) : 0;
}

static void add_to(float *total, const float *part, int64_t stride, int threads, int64_t d)
{
    for (int t = 0; total && t < threads; t++)
        for (int64_t j = 0; j < d; j++)
            total[j] += part[t * stride + j];
}

void cpu_rope_bwd(struct device *dev, const struct op_rope *op)
{
    struct op_rope typed = wide(dev, op), *a = &typed;
    struct op_limits limits = {.head_dim = a->dim, .train = true};
    int64_t d = a->dim;
    float *sums = dev->work;
    int team = 1;

    if (dev->err.code || cpu_work_short(dev, "rope_bwd", cpu_rope_work(dev, &limits)))
        return;
#pragma omp parallel num_threads(threads_for(dev, a))
    {
        int me = omp_get_thread_num();
        int64_t begin, end;

        cpu_range(&begin, &end, a->n, 1, me, omp_get_num_threads());
        rows_bwd(a, sums + 2 * me * d, sums + (2 * me + 1) * d, begin, end);
#pragma omp master
        team = omp_get_num_threads();
    }
    add_to(a->dq_norm, sums, 2 * d, team, d);
    add_to(a->dk_norm, sums + d, 2 * d, team, d);
}
