/*
 * act - see act.h.  Each function is one inline line of vmath.h; the loops around them are made
 * by this list, so that all become SIMD code alike.
 */
#include "trainer/cpu/act.h"

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/drop.h"
#include "trainer/cpu/vmath.h"

#define ACT(name, both)                                                                        \
    CPU_HOT static void name##_rows(float *out, const float *pre, int64_t n)                   \
    {                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
        {                                                                                      \
            float value;                                                                       \
                                                                                               \
            both(pre[i], &value);                                                              \
            out[i] = value;                                                                    \
        }                                                                                      \
    }                                                                                          \
    CPU_HOT static void name##_back(float *x, float *restrict dx, const float *pre, int64_t n) \
    {                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
        {                                                                                      \
            float value;                                                                       \
                                                                                               \
            dx[i] *= both(pre[i], &value);                                                     \
            x[i] = value;                                                                      \
        }                                                                                      \
    }                                                                                          \
    CPU_HOT static void name##_gate(float *restrict out, const float *restrict g,              \
                                    const float *restrict u, int64_t n)                        \
    {                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
        {                                                                                      \
            float value;                                                                       \
                                                                                               \
            both(g[i], &value);                                                                \
            out[i] = value * u[i];                                                             \
        }                                                                                      \
    }                                                                                          \
    CPU_HOT static void name##_gate_back(float *restrict dg, float *restrict du,               \
                                         const float *restrict dout, const float *restrict g,  \
                                         const float *restrict u, int64_t n)                   \
    {                                                                                          \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++)                                    \
        {                                                                                      \
            float value, slope = both(g[i], &value);                                           \
                                                                                               \
            dg[i] = dout[i] * u[i] * slope;                                                    \
            du[i] = dout[i] * value;                                                           \
        }                                                                                      \
    }

ACT(gelu_tanh, cpu_gelu_both)
ACT(gelu_erf, cpu_gelu_erf_both)
ACT(relu, act_relu_slope)
ACT(silu, cpu_silu_both)

static const struct {
    void (*rows)(float *out, const float *pre, int64_t n);
    void (*back)(float *restrict x, float *restrict dx, const float *restrict pre, int64_t n);
    void (*gate)(float *restrict out, const float *restrict g, const float *restrict u,
                 int64_t n);
    void (*gate_back)(float *restrict dg, float *restrict du, const float *restrict dout,
                      const float *restrict g, const float *restrict u, int64_t n);
} table[] = {
    [OP_ACT_GELU_TANH] = {gelu_tanh_rows, gelu_tanh_back, gelu_tanh_gate, gelu_tanh_gate_back},
    [OP_ACT_GELU_ERF] = {gelu_erf_rows, gelu_erf_back, gelu_erf_gate, gelu_erf_gate_back},
    [OP_ACT_RELU] = {relu_rows, relu_back, relu_gate, relu_gate_back},
    [OP_ACT_SILU] = {silu_rows, silu_back, silu_gate, silu_gate_back},
};

void cpu_act_rows(enum op_act act, float *out, const float *pre, int64_t n)
{
    table[act].rows(out, pre, n);
}

void cpu_act_back(enum op_act act, float *x, float *dx, const float *pre, int64_t n)
{
    table[act].back(x, dx, pre, n);
}

void cpu_act_gate(enum op_act act, float *out, const float *g, const float *u, int64_t n)
{
    table[act].gate(out, g, u, n);
}

void cpu_act_gate_back(enum op_act act, float *dg, float *du, const float *dout, const float *g,
                       const float *u, int64_t n)
{
    table[act].gate_back(dg, du, dout, g, u, n);
}

void cpu_gate_fwd(struct device *dev, const struct op_gate *a)
{
    const float *u = a->u;
    float *out = a->out;

    if (dev->err.code)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 16 * a->n * a->ff))
    for (int64_t i = 0; i < a->n; i++) {
        cpu_act_gate(a->act, out + i * a->ff, u + 2 * i * a->ff, u + (2 * i + 1) * a->ff, a->ff);
        if (a->drop.p > 0)
            cpu_drop_rows(out + i * a->ff, a->ff, out + i * a->ff, a->ff, &a->drop, i, i + 1,
                          a->ff);
    }
}

void cpu_gate_bwd(struct device *dev, const struct op_gate *a)
{
    const float *u = a->u;
    float *du = a->du, *dout = a->dout;

    if (a->recompute)
        cpu_gate_fwd(dev, a);
    if (dev->err.code)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 16 * a->n * a->ff))
    for (int64_t i = 0; i < a->n; i++) {
        if (a->drop.p > 0)
            cpu_drop_rows(dout + i * a->ff, a->ff, dout + i * a->ff, a->ff, &a->drop, i, i + 1,
                          a->ff);
        cpu_act_gate_back(a->act, du + 2 * i * a->ff, du + (2 * i + 1) * a->ff, dout + i * a->ff,
                          u + 2 * i * a->ff, u + (2 * i + 1) * a->ff, a->ff);
    }
}
