/*
 * vmath - exp and functions based on it, written so that a loop of them becomes SIMD code: no
 * branch, no call, no table.
 *
 * Measured over all finite floats of the stated range against f64
 * (tests/unit/model/test_vmath.c): relative error of cpu_exp <= 1.2e-7 on [-87, 88].  Below that
 * range it is 0, so that no result is denormal; above it is exp(88), never infinity.  NaN stays
 * NaN. Source of the polynomial: Cephes expf (Moshier), Cody-Waite reduction by ln 2 in two
 * parts.
 */
#ifndef CKPT_TRAINER_CPU_VMATH_H
#define CKPT_TRAINER_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

#include "trainer/act_math.h"
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

/* As in act_math.h: returns the slope, and the function's value in *value. */
CPU_INLINE float cpu_gelu_both(float x, float *value)
{
    float e = cpu_exp(act_gelu_exponent(x));

    return act_gelu_slope(x, e, 1.0f / (1.0f + e), value);
}

CPU_INLINE float cpu_silu_both(float x, float *value)
{
    float e = cpu_exp(-x);

    return act_silu_slope(x, e, 1.0f / (1.0f + e), value);
}

CPU_INLINE float cpu_phi(float x)
{
    float z = (x < 0 ? -x : x) * ACT_SQRT_HALF, t = 1.0f / (1.0f + 0.5f * z);

    return act_phi_of(x, t, cpu_exp(act_phi_exponent(z, t)));
}

CPU_INLINE float cpu_gelu_erf_both(float x, float *value)
{
    return act_gelu_erf_slope(x, cpu_phi(x), cpu_exp(-0.5f * x * x), value);
}

#endif
