/*
 * vmath - exp and what follows from it, written so that a loop of them becomes SIMD code: no
 * branch, no call, no table.
 *
 * Measured over all finite floats of the stated range against f64 (tests/unit/test_vmath.c):
 * relative error of cpu_exp <= 1.2e-7 on [-87, 88]; beyond, the ends of the range are given, so
 * exp never becomes 0 or infinity.  NaN stays NaN.
 * Source of the polynomial: Cephes expf (Moshier), Cody-Waite reduction by ln 2 in two parts.
 */
#ifndef CKPT_CPU_VMATH_H
#define CKPT_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

#include "trainer/cpu/cpu.h"

CPU_INLINE float cpu_exp(float x)
{
    const float magic = 12582912.0f;            /* 1.5 * 2^23: adding it rounds to an integer */
    float z, n, r, p;
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
    return p;
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

#endif
