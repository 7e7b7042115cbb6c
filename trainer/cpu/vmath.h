/*
 * vmath - exp and what follows from it, written so that a loop of them becomes SIMD code: no
 * branch, no call, no table.
 *
 * Measured over all finite floats of the stated range against f64 (tests/unit/model/test_vmath.c):
 * relative error of cpu_exp <= 1.2e-7 on [-87, 88]; below it is 0, so that no number comes near
 * those that have no full mantissa; above it is that of 88, never infinity.  NaN stays NaN.
 * Source of the polynomial: Cephes expf (Moshier), Cody-Waite reduction by ln 2 in two parts.
 */
#ifndef CKPT_TRAINER_CPU_VMATH_H
#define CKPT_TRAINER_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

#include "trainer/cpu/cpu.h"

CPU_INLINE float cpu_exp(float given)
{
    const float magic = 12582912.0f;            /* 1.5 * 2^23: adding it rounds to an integer */
    float x = given, z, n, r, p;
    int32_t bits, scale;

    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    z = x * 1.44269504088896341f + magic;
    n = z - magic;
    r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    /* times 2^n: add n to the exponent */
    memcpy(&scale, &z, sizeof scale);
    memcpy(&bits, &p, sizeof bits);
    bits = (int32_t)((uint32_t)bits + ((uint32_t)scale << 23));
    memcpy(&p, &bits, sizeof p);
    return given < -87.0f ? 0.0f : p;
}

CPU_INLINE float cpu_sigmoid(float x) { return 1.0f / (1.0f + cpu_exp(-x)); }

/* 0.5x(1 + tanh(u)) = x sigmoid(2u), u = 0.79788456x(1 + 0.044715x^2), without cancellation. */
CPU_INLINE float cpu_gelu(float x)
{
    return x * cpu_sigmoid(x * (1.5957691216f + 0.0713548162726f * x * x));
}

/* The value and the derivative from one exponential; 1 - s is e s, without cancellation. */
CPU_INLINE float cpu_gelu_both(float x, float *value)
{
    float e = cpu_exp(-x * (1.5957691216f + 0.0713548162726f * x * x)), s = 1.0f / (1.0f + e);

    *value = x * s;
    return s + x * s * (e * s) * (1.5957691216f + 0.2140644488f * x * x);
}

/* max(0, x), and 1 or 0. */
CPU_INLINE float cpu_relu_both(float x, float *value)
{
    *value = x > 0 ? x : 0;
    return x > 0 ? 1.0f : 0.0f;
}

/* x s(x), and s (1 + x (1 - s)); 1 - s is e s, without cancellation. */
CPU_INLINE float cpu_silu_both(float x, float *value)
{
    float e = cpu_exp(-x), s = 1.0f / (1.0f + e);

    *value = x * s;
    return s * (1.0f + x * (e * s));
}

/*
 * The normal distribution function, from erfc(|x| / sqrt(2)) / 2 = t (...) exp(-x^2 / 2) / 2, so
 * that small tails keep their digits.
 * Source of the rational Chebyshev fit: W. Cody's problem as in Numerical Recipes' erfc_chebyshev
 * (relative error 1.2e-7).
 */
CPU_INLINE float cpu_phi(float x)
{
    float z = (x < 0 ? -x : x) * 0.70710678118654752f, t = 1.0f / (1.0f + 0.5f * z), p;

    p = 0.17087277f;
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = 0.5f * t * cpu_exp(-z * z - 1.26551223f + t * p);
    return x < 0 ? p : 1.0f - p;
}

/* x phi(x), and phi(x) + x exp(-x^2 / 2) / sqrt(2 pi). */
CPU_INLINE float cpu_gelu_erf_both(float x, float *value)
{
    float phi = cpu_phi(x);

    *value = x * phi;
    return phi + x * 0.39894228040143268f * cpu_exp(-0.5f * x * x);
}

#endif
