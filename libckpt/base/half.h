/*
 * half - 16-bit and 8-bit floats <-> f32, one element at a time: the exact reference.
 *
 * Rounding is to nearest, ties to even, subnormals kept, as torch does.  Values beyond the
 * largest finite one become infinity in F16, BF16 and F8_E5M2; F8_E4M3 (fn) has no infinity and
 * saturates, for infinite input too, as torch 2.15 does (earlier versions gave NaN); the fnuz
 * types give NaN.  NaN stays NaN: BF16 0x7fc0; F16 keeps the sign and the upper bits of the
 * payload; F8 all ones with the sign (fnuz: 0x80), and back to f32 with the quiet bit set.
 * Sources: IEEE 754-2019; torch/headeronly/util/{Half,BFloat16,Float8_*}.h of PyTorch 2.15.
 */
#ifndef CKPT_LIBCKPT_BASE_HALF_H
#define CKPT_LIBCKPT_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t ckpt_f32_bits(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float ckpt_f32_of_bits(uint32_t u)
{
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float ckpt_bf16_to_f32(uint16_t h) { return ckpt_f32_of_bits((uint32_t)h << 16); }

static inline uint16_t ckpt_f32_to_bf16(float f)
{
    uint32_t u = ckpt_f32_bits(f);

    if ((u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fc0;                             /* torch's one NaN */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

float ckpt_f16_to_f32(uint16_t h);
uint16_t ckpt_f32_to_f16(float f);
float ckpt_f8_e4m3_to_f32(uint8_t b);
uint8_t ckpt_f32_to_f8_e4m3(float f);
float ckpt_f8_e5m2_to_f32(uint8_t b);
uint8_t ckpt_f32_to_f8_e5m2(float f);
float ckpt_f8_e4m3fnuz_to_f32(uint8_t b);
uint8_t ckpt_f32_to_f8_e4m3fnuz(float f);
float ckpt_f8_e5m2fnuz_to_f32(uint8_t b);
uint8_t ckpt_f32_to_f8_e5m2fnuz(float f);

#endif
