/*
 * act_math - the arithmetic of activation functions that cpu/ and cuda/ share: everything but the
 * exponential and the reciprocal, which each backend computes in its own way.
 *
 * A function X takes e = exp(X_exponent(x)) and the sigmoid s = 1 / (1 + e); it returns the slope
 * and puts the value into *value.  1 - s is computed as e s, without cancellation.
 */
#ifndef CKPT_TRAINER_ACT_MATH_H
#define CKPT_TRAINER_ACT_MATH_H

#include "trainer/host_device.h"

/* GELU by tanh: 0.5x(1 + tanh(u)) = x sigmoid(2u), u = 0.79788456x(1 + 0.044715x^2). */
HOST_DEVICE float act_gelu_exponent(float x)
{
    return -x * (1.5957691216f + 0.0713548162726f * x * x);
}

HOST_DEVICE float act_gelu_slope(float x, float e, float s, float *value)
{
    *value = x * s;
    return s + x * s * (e * s) * (1.5957691216f + 0.2140644488f * x * x);
}

/* x s(x), and s (1 + x (1 - s)); its exponent is -x. */
HOST_DEVICE float act_silu_slope(float x, float e, float s, float *value)
{
    *value = x * s;
    return s * (1.0f + x * (e * s));
}

/* max(0, x), and 1 or 0. */
HOST_DEVICE float act_relu_slope(float x, float *value)
{
    *value = x > 0 ? x : 0;
    return x > 0 ? 1.0f : 0.0f;
}

/*
 * GELU by erf: x phi(x), and phi(x) + x exp(-x^2 / 2) / sqrt(2 pi), phi the normal distribution
 * function.  From erfc(|x| / sqrt(2)) / 2 = t exp(act_phi_exponent(z, t)) / 2, so that small tails
 * keep their digits; z = |x| / sqrt(2), t = 1 / (1 + z / 2).
 * Source of the rational Chebyshev fit: W. Cody's problem as in Numerical Recipes' erfc_chebyshev
 * (relative error 1.2e-7).
 */
#define ACT_SQRT_HALF 0.70710678118654752f

HOST_DEVICE float act_phi_exponent(float z, float t)
{
    float p = 0.17087277f;

    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    return -z * z - 1.26551223f + t * p;
}

/* e: exp of act_phi_exponent. */
HOST_DEVICE float act_phi_of(float x, float t, float e)
{
    float p = 0.5f * t * e;

    return x < 0 ? p : 1.0f - p;
}

/* e: exp(-x^2 / 2). */
HOST_DEVICE float act_gelu_erf_slope(float x, float phi, float e, float *value)
{
    *value = x * phi;
    return phi + x * 0.39894228040143268f * e;
}

#endif
