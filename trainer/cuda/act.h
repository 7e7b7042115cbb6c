/*
 * act - activation functions inside kernels: the value, and the slope with it, in f32.
 *
 * The formulas are those of trainer/cpu/vmath.h (exponents end at 88 as there, so that no
 * infinity meets a zero); exponentials are the toolkit's (2 ulp), reciprocals those of the chip
 * (1 ulp).  NaN stays NaN, but relu makes it 0, as there.
 */
#ifndef CKPT_TRAINER_CUDA_ACT_H
#define CKPT_TRAINER_CUDA_ACT_H

#include "trainer/cuda/cuda.h"

/* 1 / x of a normal x >= 0; 0 where that is below the normal numbers. */
__device__ __forceinline__ float act_inverse(float x)
{
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float act_exp(float x) { return expf(fminf(x, 88.0f)); }

/* The normal distribution function; see cpu_phi. */
__device__ __forceinline__ float act_phi(float x)
{
    float z = fabsf(x) * 0.70710678118654752f, t = act_inverse(1.0f + 0.5f * z), p;

    p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = 0.5f * t * act_exp(-z * z - 1.26551223f + t * p);
    return x < 0 ? p : 1.0f - p;
}

/* The slope at x; *value becomes the value. */
template <enum op_act A> __device__ __forceinline__ float act_slope(float x, float *value)
{
    if constexpr (A == OP_ACT_GELU_TANH) {
        float e = act_exp(-x * (1.5957691216f + 0.0713548162726f * x * x));
        float s = act_inverse(1.0f + e);

        *value = x * s;
        return s + x * s * (e * s) * (1.5957691216f + 0.2140644488f * x * x);
    } else if constexpr (A == OP_ACT_GELU_ERF) {
        float phi = act_phi(x);

        *value = x * phi;
        return phi + x * 0.39894228040143268f * act_exp(-0.5f * x * x);
    } else if constexpr (A == OP_ACT_RELU) {
        *value = x > 0 ? x : 0;
        return x > 0 ? 1.0f : 0.0f;
    } else if constexpr (A == OP_ACT_SILU) {
        float e = act_exp(-x), s = act_inverse(1.0f + e);

        *value = x * s;
        return s * (1.0f + x * (e * s));
    } else {
        *value = x;
        return 1.0f;
    }
}

template <enum op_act A> __device__ __forceinline__ float act_value(float x)
{
    float value;

    act_slope<A>(x, &value);            /* what the slope alone needs is left out */
    return value;
}

/* Run the statements with A as the activation function. */
#define CUDA_OP_ACT(act_, ...)                                                                 \
    do {                                                                                       \
        switch (act_) {                                                                        \
        case OP_ACT_GELU_TANH: {                                                               \
            constexpr enum op_act A = OP_ACT_GELU_TANH;                                        \
            __VA_ARGS__;                                                                       \
        } break;                                                                               \
        case OP_ACT_GELU_ERF: {                                                                \
            constexpr enum op_act A = OP_ACT_GELU_ERF;                                         \
            __VA_ARGS__;                                                                       \
        } break;                                                                               \
        case OP_ACT_RELU: {                                                                    \
            constexpr enum op_act A = OP_ACT_RELU;                                             \
            __VA_ARGS__;                                                                       \
        } break;                                                                               \
        case OP_ACT_SILU: {                                                                    \
            constexpr enum op_act A = OP_ACT_SILU;                                             \
            __VA_ARGS__;                                                                       \
        } break;                                                                               \
        default: {                                                                             \
            constexpr enum op_act A = OP_ACT_NONE;                                             \
            __VA_ARGS__;                                                                       \
        } break;                                                                               \
        }                                                                                      \
    } while (0)

#endif
