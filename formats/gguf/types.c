/*
 * gguf/types - see gguf/types.h.
 *
 * The comment before each decoder gives the layout of its block.  "d" and "m" are f16 unless
 * noted; the low nibble comes first: byte j of 16 has elements j and j + 16.
 */
#include "formats/gguf/types.h"

#include <math.h>

#include "libckpt/base/half.h"

static float f16_at(const unsigned char *p)
{
    return ckpt_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static int nibble(const unsigned char *qs, int j) { return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4; }

/* d, qs[16] */
static void q4_0(float *dst, const unsigned char *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)(nibble(b + 2, j) - 8);
}

/* d, m, qs[16] */
static void q4_1(float *dst, const unsigned char *b)
{
    float d = f16_at(b), m = f16_at(b + 2);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)nibble(b + 4, j) + m;
}

static int fifth_bit(const unsigned char *qh, int j) { return (qh[j / 8] >> j % 8 & 1) << 4; }

/* d, qh[4] the fifth bits, qs[16] */
static void q5_0(float *dst, const unsigned char *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)((nibble(b + 6, j) | fifth_bit(b + 2, j)) - 16);
}

/* d, m, qh[4], qs[16] */
static void q5_1(float *dst, const unsigned char *b)
{
    float d = f16_at(b), m = f16_at(b + 2);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)(nibble(b + 8, j) | fifth_bit(b + 4, j)) + m;
}

/* d, qs[32] signed */
void gguf_q8_0_values(float *dst, const unsigned char *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)(int8_t)b[2 + j];
}

/* Two bits of element e: four planes of 32 bytes' width, twice. */
static int two_bits(const unsigned char *qs, int e)
{
    return qs[e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3;
}

/* scales[16] (low: scale, high: minimum), qs[64], d, m */
static void q2_k(float *dst, const unsigned char *b)
{
    float d = f16_at(b + 80), m = f16_at(b + 82);

    for (int e = 0; e < 256; e++) {
        float dl = d * (float)(b[e / 16] & 15), ml = m * (float)(b[e / 16] >> 4);

        dst[e] = dl * (float)two_bits(b + 16, e) - ml;
    }
}

/* hmask[32], qs[64], scales[12] of 6 bits, d */
static void q3_k(float *dst, const unsigned char *b)
{
    const unsigned char *s = b + 96;
    float d = f16_at(b + 108);

    for (int e = 0; e < 256; e++) {
        int i = e / 16;
        int scale = (i < 8 ? s[i] & 15 : s[i - 8] >> 4) | (s[8 + i % 4] >> i / 4 * 2 & 3) << 4;
        int q = two_bits(b + 32, e) - (b[e % 32] >> e / 32 & 1 ? 0 : 4);

        dst[e] = d * (float)(scale - 32) * (float)q;
    }
}

/* Scale and minimum i of eight, six bits each, in 12 bytes. */
static void scale_min(const unsigned char *s, int i, int *scale, int *min)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *min = s[4 + i] & 63;
    } else {
        *scale = (s[4 + i] & 15) | (s[i - 4] >> 2 & 0x30);
        *min = s[4 + i] >> 4 | (s[i] >> 2 & 0x30);
    }
}

/* d, m, scales[12], (qh[32] the fifth bits,) qs[128] */
static void q45_k(float *dst, const unsigned char *b, const unsigned char *qh,
                  const unsigned char *qs)
{
    float d = f16_at(b), m = f16_at(b + 2);
    int scale, min;

    for (int i = 0; i < 8; i++) {
        float dl, ml;

        scale_min(b + 4, i, &scale, &min);
        dl = d * (float)scale;
        ml = m * (float)min;
        for (int j = 0; j < 32; j++) {
            int q = qs[i / 2 * 32 + j] >> i % 2 * 4 & 15;

            if (qh)
                q |= (qh[j] >> i & 1) << 4;
            dst[i * 32 + j] = dl * (float)q - ml;
        }
    }
}

static void q4_k(float *dst, const unsigned char *b) { q45_k(dst, b, NULL, b + 16); }
static void q5_k(float *dst, const unsigned char *b) { q45_k(dst, b, b + 16, b + 48); }

/* ql[128], qh[64], scales[16] signed, d */
static void q6_k(float *dst, const unsigned char *b)
{
    float d = f16_at(b + 208);

    for (int e = 0; e < 256; e++) {
        int low = b[e / 128 * 64 + e % 64] >> e % 128 / 64 * 4 & 15;
        int q = (low | two_bits(b + 128, e) << 4) - 32;

        dst[e] = d * (float)(int8_t)b[192 + e / 16] * (float)q;
    }
}

/* Digit k of five in base three, packed so that multiplication brings out the highest digit. */
static float trit(float d, unsigned char packed, int k)
{
    static const unsigned char power[5] = {1, 3, 9, 27, 81};
    unsigned char shifted = (unsigned char)(packed * power[k]);

    return d * (float)((shifted * 3 >> 8) - 1);
}

/* qs[32] and qs[16] of five digits a byte, qh[4] of four, d */
static void tq1_0(float *dst, const unsigned char *b)
{
    float d = f16_at(b + 52);

    for (int e = 0; e < 256; e++)
        dst[e] = e < 160   ? trit(d, b[e % 32], e / 32)
                 : e < 240 ? trit(d, b[32 + e % 16], (e - 160) / 16)
                           : trit(d, b[48 + e % 4], (e - 240) / 4);
}

/* qs[64], d */
static void tq2_0(float *dst, const unsigned char *b)
{
    float d = f16_at(b + 64);

    for (int e = 0; e < 256; e++)
        dst[e] = d * (float)(two_bits(b, e) - 1);
}

/* E2M1, doubled */
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* e: half of 2^(e - 127), qs[16] */
static void mxfp4(float *dst, const unsigned char *b)
{
    uint32_t e = b[0];
    float d = ckpt_f32_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)e2m1[nibble(b + 1, j)];
}

/* Half of an unsigned E4M3; the pattern of its NaN is 0. */
static float ue4m3(unsigned char x)
{
    int exp = x >> 3 & 15, man = x & 7;

    if (x == 0 || x == 0x7f)
        return 0;
    return exp == 0 ? ldexpf((float)man, -10) : ldexpf((float)(8 + man), exp - 11);
}

/* d[4] of 16 elements each, qs[32]: eight bytes for each */
static void nvfp4(float *dst, const unsigned char *b)
{
    for (int e = 0; e < 64; e++) {
        unsigned char q = b[4 + e / 16 * 8 + e % 8];

        dst[e] = ue4m3(b[e / 16]) * (float)e2m1[e % 16 < 8 ? q & 15 : q >> 4];
    }
}

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1, 13, 25, 38, 53, 69, 89, 113};

/* d, qs[16] */
static void iq4_nl(float *dst, const unsigned char *b)
{
    float d = f16_at(b);

    for (int j = 0; j < 32; j++)
        dst[j] = d * (float)iq4[nibble(b + 2, j)];
}

/* d, high scale bits u16, low scale bits[4], qs[128] */
static void iq4_xs(float *dst, const unsigned char *b)
{
    float d = f16_at(b);
    int high = b[2] | b[3] << 8;

    for (int i = 0; i < 8; i++) {
        int scale = (b[4 + i / 2] >> i % 2 * 4 & 15) | (high >> 2 * i & 3) << 4;
        float dl = d * (float)(scale - 32);

        for (int j = 0; j < 32; j++)
            dst[i * 32 + j] = dl * (float)iq4[nibble(b + 8 + 16 * i, j)];
    }
}

static const struct gguf_type types[] = {
    [0] = {"F32", 1, 4, CKPT_F32, NULL},
    [1] = {"F16", 1, 2, CKPT_F16, NULL},
    [2] = {"Q4_0", 32, 18, CKPT_F32, q4_0},
    [3] = {"Q4_1", 32, 20, CKPT_F32, q4_1},
    [6] = {"Q5_0", 32, 22, CKPT_F32, q5_0},
    [7] = {"Q5_1", 32, 24, CKPT_F32, q5_1},
    [8] = {"Q8_0", 32, 34, CKPT_F32, gguf_q8_0_values},
    [9] = {"Q8_1", 0, 0, CKPT_F32, NULL},       /* for activations: has had two layouts */
    [10] = {"Q2_K", 256, 84, CKPT_F32, q2_k},
    [11] = {"Q3_K", 256, 110, CKPT_F32, q3_k},
    [12] = {"Q4_K", 256, 144, CKPT_F32, q4_k},
    [13] = {"Q5_K", 256, 176, CKPT_F32, q5_k},
    [14] = {"Q6_K", 256, 210, CKPT_F32, q6_k},
    [15] = {"Q8_K", 256, 292, CKPT_F32, NULL},  /* for activations */
    [16] = {"IQ2_XXS", 256, 66, CKPT_F32, NULL},
    [17] = {"IQ2_XS", 256, 74, CKPT_F32, NULL},
    [18] = {"IQ3_XXS", 256, 98, CKPT_F32, NULL},
    [19] = {"IQ1_S", 256, 50, CKPT_F32, NULL},
    [20] = {"IQ4_NL", 32, 18, CKPT_F32, iq4_nl},
    [21] = {"IQ3_S", 256, 110, CKPT_F32, NULL},
    [22] = {"IQ2_S", 256, 82, CKPT_F32, NULL},
    [23] = {"IQ4_XS", 256, 136, CKPT_F32, iq4_xs},
    [24] = {"I8", 1, 1, CKPT_I8, NULL},
    [25] = {"I16", 1, 2, CKPT_I16, NULL},
    [26] = {"I32", 1, 4, CKPT_I32, NULL},
    [27] = {"I64", 1, 8, CKPT_I64, NULL},
    [28] = {"F64", 1, 8, CKPT_F64, NULL},
    [29] = {"IQ1_M", 256, 56, CKPT_F32, NULL},
    [30] = {"BF16", 1, 2, CKPT_BF16, NULL},
    [34] = {"TQ1_0", 256, 54, CKPT_F32, tq1_0},
    [35] = {"TQ2_0", 256, 66, CKPT_F32, tq2_0},
    [39] = {"MXFP4", 32, 17, CKPT_F32, mxfp4},
    [40] = {"NVFP4", 64, 36, CKPT_F32, nvfp4},
    [41] = {"Q1_0", 128, 18, CKPT_F32, NULL},
    [42] = {"Q2_0", 0, 0, CKPT_F32, NULL},
};

#define N_TYPES (sizeof types / sizeof types[0])

const struct gguf_type *gguf_type(uint32_t number)
{
    return number < N_TYPES && types[number].name ? &types[number] : NULL;
}

uint32_t gguf_type_of(enum ckpt_dtype dtype)
{
    for (uint32_t i = 0; i < N_TYPES; i++)
        if (types[i].n == 1 && types[i].dtype == dtype)
            return i;
    return UINT32_MAX;
}

void gguf_q8_0_pack(unsigned char block[GGUF_Q8_0_BYTES], const float *src)
{
    float most = 0, d, inverse;
    uint16_t half;

    for (int j = 0; j < GGUF_Q8_0_N; j++)
        most = fabsf(src[j]) > most ? fabsf(src[j]) : most;
    d = most / 127.0f;
    inverse = d != 0 ? 1.0f / d : 0;
    half = ckpt_f32_to_f16(d);
    block[0] = (unsigned char)half;
    block[1] = (unsigned char)(half >> 8);
    for (int j = 0; j < GGUF_Q8_0_N; j++) {
        float q = roundf(src[j] * inverse);

        /* NaN, and overflow in a block of subnormals, have no integer: 0, as in numpy. */
        block[2 + j] = (unsigned char)(fabsf(q) <= 127.0f ? (int8_t)q : 0);
    }
}

void gguf_q8_0_round(float *x, size_t n)
{
    unsigned char block[GGUF_Q8_0_BYTES];

    for (size_t i = 0; i + GGUF_Q8_0_N <= n; i += GGUF_Q8_0_N) {
        gguf_q8_0_pack(block, x + i);
        gguf_q8_0_values(x + i, block);
    }
}
