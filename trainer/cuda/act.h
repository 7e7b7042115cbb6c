/*
 * act - activation functions inside kernels: the value alone, or with the slope, in f32.
 *
 * The arithmetic is that of trainer/act_math.h; exponents are limited to 88, so that infinity
 * times zero cannot occur.  Exponentials are the toolkit's (2 ulp), reciprocals the chip's (1
 * ulp).  NaN stays NaN, except that relu makes it 0, as on the CPU.
 */
#ifndef CKPT_TRAINER_CUDA_ACT_H
#define CKPT_TRAINER_CUDA_ACT_H

#include "trainer/act_math.h"
#include "trainer/cuda/cuda.h"

/* 1 / x of a normal x >= 0; 0 where the result would be denormal. */
__device__ __forceinline__ float act_inverse(float x)
{
#ifdef __CUDACC__
    float y;

    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

__device__ __forceinline__ float act_exp(float x) { return expf(fminf(x, 88.0f)); }

/* The normal distribution function. */
__device__ __forceinline__ float act_phi(float x)
{
    float z = fabsf(x) * ACT_SQRT_HALF, t = act_inverse(1.0f + 0.5f * z);

    return act_phi_of(x, t, act_exp(act_phi_exponent(z, t)));
}

/* The slope at x; *value becomes the value. */
template <enum op_act A> __device__ __forceinline__ float act_slope(float x, float *value)
{
    if constexpr (A == OP_ACT_GELU_TANH) {
        float e = act_exp(act_gelu_exponent(x));

        return act_gelu_slope(x, e, act_inverse(1.0f + e), value);
    } else if constexpr (A == OP_ACT_GELU_ERF) {
        return act_gelu_erf_slope(x, act_phi(x), act_exp(-0.5f * x * x), value);
    } else if constexpr (A == OP_ACT_RELU) {
        return act_relu_slope(x, value);
    } else if constexpr (A == OP_ACT_SILU) {
        float e = act_exp(-x);

        return act_silu_slope(x, e, act_inverse(1.0f + e), value);
    } else {
        *value = x;
        return 1.0f;
    }
}

template <enum op_act A> __device__ __forceinline__ float act_value(float x)
{
    float value;

    act_slope<A>(x, &value);            /* the compiler drops the slope's computation */
    return value;
}

/* Run the statements with A as the activation function. */
#define CUDA_OP_ACT(act_, ...)                                                                 \
    do {                                                                                       \
        switch (act_) {                                                                        \
        case OP_ACT_GELU_TANH: CUDA_WITH_ACT(OP_ACT_GELU_TANH, __VA_ARGS__); break;            \
        case OP_ACT_GELU_ERF: CUDA_WITH_ACT(OP_ACT_GELU_ERF, __VA_ARGS__); break;              \
        case OP_ACT_RELU: CUDA_WITH_ACT(OP_ACT_RELU, __VA_ARGS__); break;                      \
        case OP_ACT_SILU: CUDA_WITH_ACT(OP_ACT_SILU, __VA_ARGS__); break;                      \
        default: CUDA_WITH_ACT(OP_ACT_NONE, __VA_ARGS__); break;                               \
        }                                                                                      \
    } while (0)
#define CUDA_WITH_ACT(act_, ...)                                                               \
    {                                                                                          \
        constexpr enum op_act A = act_;                                                        \
        __VA_ARGS__;                                                                           \
    }

#endif
