/* half - see half.h. */
#include "libckpt/base/half.h"

/* A small float format: its widths, and the result for values beyond its largest. */
struct small {
    int      exp_bits, man_bits, bias;
    uint32_t max;               /* largest finite magnitude, as bits without sign */
    uint32_t over;              /* a larger value becomes this: infinity, NaN or max itself */
    uint32_t nan;
    int      fnuz;              /* no negative zero, NaN is 0x80, no infinity */
};

static const struct small f16 = {5, 10, 15, 0x7bff, 0x7c00, 0x7e00, 0};
static const struct small e4m3 = {4, 3, 7, 0x7e, 0x7e, 0x7f, 0};
static const struct small e5m2 = {5, 2, 15, 0x7b, 0x7c, 0x7f, 0};
static const struct small e4m3fnuz = {4, 3, 8, 0x7f, 0x80, 0x80, 1};
static const struct small e5m2fnuz = {5, 2, 16, 0x7f, 0x80, 0x80, 1};

/* Round the magnitude of f to the format, to nearest, ties to even. */
static uint32_t encode(float f, const struct small *s)
{
    uint32_t bits = ckpt_f32_bits(f), mag = bits & 0x7fffffffu, man, rest, half, out;
    uint32_t sign = (bits >> 31) << (s->exp_bits + s->man_bits);
    int exponent = (int)(mag >> 23) - 127, shift;

    if (mag > 0x7f800000u)
        return s->fnuz ? s->nan : (s->nan | sign);
    if (mag == 0x7f800000u)
        return s->fnuz ? s->over : (s->over | sign);
    man = (mag & 0x7fffffu) | (mag >> 23 ? 0x800000u : 0);
    if (mag >> 23 == 0)
        exponent = -126;
    /* Bits to drop: more when the result is subnormal. */
    shift = 23 - s->man_bits;
    if (exponent < 1 - s->bias)
        shift += 1 - s->bias - exponent;
    if (shift > 25)
        shift = 25;                   /* less than half of the smallest subnormal: rounds to zero */
    rest = man & ((1u << shift) - 1);
    half = 1u << (shift - 1);
    out = man >> shift;
    if (exponent >= 1 - s->bias)        /* normal: the leading one becomes exponent */
        out += (uint32_t)(exponent + s->bias - 1) << s->man_bits;
    if (rest > half || (rest == half && (out & 1)))
        out++;
    if (out > s->max)
        return s->fnuz ? s->over : (s->over | sign);
    if (s->fnuz && out == 0)
        return 0;
    return out | sign;
}

/* A finite value, built from bits and one exact product, so that it does not depend on the
 * floating point mode. */
static float decode(uint32_t v, const struct small *s)
{
    uint32_t sign = (v >> (s->exp_bits + s->man_bits) & 1) << 31;
    uint32_t exp = v >> s->man_bits & ((1u << s->exp_bits) - 1);
    uint32_t man = v & ((1u << s->man_bits) - 1);
    uint32_t least = (uint32_t)(128 - s->bias - s->man_bits) << 23;     /* subnormal, as f32 */

    if (exp)
        return ckpt_f32_of_bits(sign | (exp + (uint32_t)(127 - s->bias)) << 23 |
                                man << (23 - s->man_bits));
    return ckpt_f32_of_bits(sign | ckpt_f32_bits((float)man * ckpt_f32_of_bits(least)));
}

float ckpt_f16_to_f32(uint16_t h)
{
    uint32_t exp = h >> 10 & 31u, sign = (uint32_t)(h >> 15) << 31, man = h & 0x3ffu;

    if (exp == 31)                      /* NaN keeps its payload and becomes quiet */
        return ckpt_f32_of_bits(sign | 0x7f800000u | man << 13 | (man ? 0x400000u : 0));
    return decode(h, &f16);
}

uint16_t ckpt_f32_to_f16(float f)
{
    uint32_t bits = ckpt_f32_bits(f);

    if ((bits & 0x7fffffffu) > 0x7f800000u)     /* as the processor's conversion instruction does */
        return (uint16_t)((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
    return (uint16_t)encode(f, &f16);
}

float ckpt_f8_e4m3_to_f32(uint8_t b)
{
    return (b & 0x7f) == 0x7f ? ckpt_f32_of_bits(0x7ff00000u | (uint32_t)(b >> 7) << 31)
                              : decode(b, &e4m3);
}

float ckpt_f8_e5m2_to_f32(uint8_t b)
{
    uint32_t sign = (uint32_t)(b >> 7) << 31;

    if ((b & 0x7c) == 0x7c)
        return ckpt_f32_of_bits(sign | 0x7f800000u |
                                ((b & 3) ? 0x400000u | (b & 3u) << 21 : 0));
    return decode(b, &e5m2);
}

float ckpt_f8_e4m3fnuz_to_f32(uint8_t b)
{
    return b == 0x80 ? ckpt_f32_of_bits(0x7fc00000u) : decode(b, &e4m3fnuz);
}

float ckpt_f8_e5m2fnuz_to_f32(uint8_t b)
{
    return b == 0x80 ? ckpt_f32_of_bits(0x7fc00000u) : decode(b, &e5m2fnuz);
}

uint8_t ckpt_f32_to_f8_e4m3(float f) { return (uint8_t)encode(f, &e4m3); }
uint8_t ckpt_f32_to_f8_e5m2(float f) { return (uint8_t)encode(f, &e5m2); }
uint8_t ckpt_f32_to_f8_e4m3fnuz(float f) { return (uint8_t)encode(f, &e4m3fnuz); }
uint8_t ckpt_f32_to_f8_e5m2fnuz(float f) { return (uint8_t)encode(f, &e5m2fnuz); }
