/* convert - see convert.h. */
#include "libckpt/convert.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "libckpt/half.h"

#define BLOCK 512               /* elements staged between two dtypes */

/* To and from f32 (exact for 8- and 16-bit types) or f64 (for the wider ones). */
#define LOAD(name, type, wide, expr)                                                               \
    static void name(wide *dst, const void *src, size_t n)                                         \
    {                                                                                              \
        const unsigned char *s = src;                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            type v;                                                                                \
            memcpy(&v, s + i * sizeof v, sizeof v);                                                \
            dst[i] = expr;                                                                         \
        }                                                                                          \
    }
#define STORE(name, type, wide, expr)                                                              \
    static void name(void *dst, const wide *src, size_t n)                                         \
    {                                                                                              \
        unsigned char *d = dst;                                                                    \
        for (size_t i = 0; i < n; i++) {                                                           \
            wide v = src[i];                                                                       \
            type r = expr;                                                                         \
            memcpy(d + i * sizeof r, &r, sizeof r);                                                \
        }                                                                                          \
    }

/* Truncates, clamps, NaN is 0. */
#define TO_INT(type, low, high)                                                                    \
    (type)(isnan(v) ? 0 : v <= (low) ? (type)(low) : v >= (high) ? (type)(high) : (type)v)

LOAD(load_f16, uint16_t, float, ckpt_f16_to_f32(v))
LOAD(load_bf16, uint16_t, float, ckpt_bf16_to_f32(v))
LOAD(load_f32, float, float, v)
LOAD(load_e4m3, uint8_t, float, ckpt_f8_e4m3_to_f32(v))
LOAD(load_e5m2, uint8_t, float, ckpt_f8_e5m2_to_f32(v))
LOAD(load_e4m3fnuz, uint8_t, float, ckpt_f8_e4m3fnuz_to_f32(v))
LOAD(load_e5m2fnuz, uint8_t, float, ckpt_f8_e5m2fnuz_to_f32(v))
STORE(store_f16, uint16_t, float, ckpt_f32_to_f16(v))
STORE(store_bf16, uint16_t, float, ckpt_f32_to_bf16(v))
STORE(store_f32, float, float, v)
STORE(store_e4m3, uint8_t, float, ckpt_f32_to_f8_e4m3(v))
STORE(store_e5m2, uint8_t, float, ckpt_f32_to_f8_e5m2(v))
STORE(store_e4m3fnuz, uint8_t, float, ckpt_f32_to_f8_e4m3fnuz(v))
STORE(store_e5m2fnuz, uint8_t, float, ckpt_f32_to_f8_e5m2fnuz(v))

LOAD(load_bool, uint8_t, double, v ? 1.0 : 0.0)
LOAD(load_u8, uint8_t, double, (double)v)
LOAD(load_i8, int8_t, double, (double)v)
LOAD(load_u16, uint16_t, double, (double)v)
LOAD(load_i16, int16_t, double, (double)v)
LOAD(load_u32, uint32_t, double, (double)v)
LOAD(load_i32, int32_t, double, (double)v)
LOAD(load_u64, uint64_t, double, (double)v)
LOAD(load_i64, int64_t, double, (double)v)
LOAD(load_f64, double, double, v)
STORE(store_bool, uint8_t, double, v != 0.0 ? 1 : 0)
STORE(store_u8, uint8_t, double, TO_INT(uint8_t, 0, 255))
STORE(store_i8, int8_t, double, TO_INT(int8_t, -128, 127))
STORE(store_u16, uint16_t, double, TO_INT(uint16_t, 0, 65535))
STORE(store_i16, int16_t, double, TO_INT(int16_t, -32768, 32767))
STORE(store_u32, uint32_t, double, TO_INT(uint32_t, 0, 4294967295.0))
STORE(store_i32, int32_t, double, TO_INT(int32_t, -2147483648.0, 2147483647.0))
STORE(store_u64, uint64_t, double,
      isnan(v) || v <= 0 ? 0 : v >= 18446744073709551615.0 ? UINT64_MAX : (uint64_t)v)
STORE(store_i64, int64_t, double,
      isnan(v) ? 0 : v <= -9223372036854775808.0 ? INT64_MIN
      : v >= 9223372036854775807.0 ? INT64_MAX : (int64_t)v)
STORE(store_f64, double, double, v)

/* Each dtype goes through f32 or f64, whichever holds all its values. */
static const struct row {
    void (*load32)(float *dst, const void *src, size_t n);
    void (*store32)(void *dst, const float *src, size_t n);
    void (*load64)(double *dst, const void *src, size_t n);
    void (*store64)(void *dst, const double *src, size_t n);
} rows[CKPT_DTYPE_COUNT] = {
    [CKPT_BOOL] = {.load64 = load_bool, .store64 = store_bool},
    [CKPT_U8] = {.load64 = load_u8, .store64 = store_u8},
    [CKPT_I8] = {.load64 = load_i8, .store64 = store_i8},
    [CKPT_U16] = {.load64 = load_u16, .store64 = store_u16},
    [CKPT_I16] = {.load64 = load_i16, .store64 = store_i16},
    [CKPT_U32] = {.load64 = load_u32, .store64 = store_u32},
    [CKPT_I32] = {.load64 = load_i32, .store64 = store_i32},
    [CKPT_U64] = {.load64 = load_u64, .store64 = store_u64},
    [CKPT_I64] = {.load64 = load_i64, .store64 = store_i64},
    [CKPT_F64] = {.load64 = load_f64, .store64 = store_f64},
    [CKPT_F16] = {.load32 = load_f16, .store32 = store_f16},
    [CKPT_BF16] = {.load32 = load_bf16, .store32 = store_bf16},
    [CKPT_F32] = {.load32 = load_f32, .store32 = store_f32},
    [CKPT_F8_E4M3] = {.load32 = load_e4m3, .store32 = store_e4m3},
    [CKPT_F8_E5M2] = {.load32 = load_e5m2, .store32 = store_e5m2},
    [CKPT_F8_E4M3FNUZ] = {.load32 = load_e4m3fnuz, .store32 = store_e4m3fnuz},
    [CKPT_F8_E5M2FNUZ] = {.load32 = load_e5m2fnuz, .store32 = store_e5m2fnuz},
};

static bool known(enum ckpt_dtype t)
{
    return (unsigned)t < CKPT_DTYPE_COUNT && (rows[t].load32 || rows[t].load64);
}

bool ckpt_convert_can(enum ckpt_dtype to, enum ckpt_dtype from)
{
    return (to == from && ckpt_dtype_size(to) > 0) || (known(to) && known(from));
}

/* One block of at most BLOCK elements through a wide array. */
static void convert_block(void *dst, const struct row *to, const void *src, const struct row *from,
                          size_t n)
{
    float f[BLOCK];
    double d[BLOCK];

    if (from->load32) {
        from->load32(f, src, n);
        if (to->store32) {
            to->store32(dst, f, n);
            return;
        }
        for (size_t i = 0; i < n; i++)
            d[i] = (double)f[i];
        to->store64(dst, d, n);
        return;
    }
    from->load64(d, src, n);
    if (to->store64) {
        to->store64(dst, d, n);
        return;
    }
    for (size_t i = 0; i < n; i++)      /* as torch: first to float, then to the small type */
        f[i] = (float)d[i];
    to->store32(dst, f, n);
}

/* -- vector paths: the same bits as the loops above, which tests compare -------------------- */

__attribute__((target("avx2"))) static void bf16_to_f32_avx2(float *dst, const uint16_t *src,
                                                             size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(src + i));
        __m256i w = _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);

        _mm256_storeu_si256((__m256i *)(void *)(dst + i), w);
    }
    load_bf16(dst + i, src + i, n - i);
}

__attribute__((target("avx2"))) static void f32_to_bf16_avx2(uint16_t *dst, const float *src,
                                                             size_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff), inf = _mm256_set1_epi32(0x7f800000);
    const __m256i bias = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
    const __m256i nan = _mm256_set1_epi32(0x7fc0);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)(src + i));
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
        __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(bias, odd)), 16);
        __m256i is_nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), inf);
        __m256i p;

        r = _mm256_blendv_epi8(r, nan, is_nan);
        p = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
        _mm_storeu_si128((__m128i *)(void *)(dst + i), _mm256_castsi256_si128(p));
    }
    store_bf16(dst + i, src + i, n - i);
}

__attribute__((target("avx2,f16c"))) static void f16_to_f32_f16c(float *dst, const uint16_t *src,
                                                                 size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i,
                         _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    load_f16(dst + i, src + i, n - i);
}

__attribute__((target("avx2,f16c"))) static void f32_to_f16_f16c(uint16_t *dst, const float *src,
                                                                 size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    store_f16(dst + i, src + i, n - i);
}

/* The four conversions that checkpoints live on; false when there is no fast way. */
static bool convert_fast(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                         size_t n)
{
    bool avx2 = __builtin_cpu_supports("avx2") > 0;
    bool f16c = avx2 && __builtin_cpu_supports("f16c") > 0;

    if (avx2 && to == CKPT_F32 && from == CKPT_BF16)
        bf16_to_f32_avx2(dst, src, n);
    else if (avx2 && to == CKPT_BF16 && from == CKPT_F32)
        f32_to_bf16_avx2(dst, src, n);
    else if (f16c && to == CKPT_F32 && from == CKPT_F16)
        f16_to_f32_f16c(dst, src, n);
    else if (f16c && to == CKPT_F16 && from == CKPT_F32)
        f32_to_f16_f16c(dst, src, n);
    else
        return false;
    return true;
}

/* Wide integers do not pass through floating point where they need not. */
static bool is_wide_int(enum ckpt_dtype t) { return t == CKPT_U64 || t == CKPT_I64; }

static void convert_wide_int(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                             size_t n)
{
    const uint64_t *s = src;
    uint64_t *d = dst;

    for (size_t i = 0; i < n; i++) {
        uint64_t v;

        memcpy(&v, s + i, sizeof v);
        if (to == CKPT_U64 && from == CKPT_I64 && (int64_t)v < 0)
            v = 0;
        if (to == CKPT_I64 && from == CKPT_U64 && v > INT64_MAX)
            v = INT64_MAX;
        memcpy(d + i, &v, sizeof v);
    }
}

void ckpt_convert(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from, size_t n)
{
    size_t in = ckpt_dtype_size(from), out = ckpt_dtype_size(to);

    if (n == 0)
        return;
    if (to == from) {
        memmove(dst, src, n * in);
        return;
    }
    if (convert_fast(dst, to, src, from, n))
        return;
    if (is_wide_int(to) && is_wide_int(from)) {
        convert_wide_int(dst, to, src, from, n);
        return;
    }
    for (size_t i = 0; i < n; i += BLOCK)
        convert_block((unsigned char *)dst + i * out, &rows[to],
                      (const unsigned char *)src + i * in, &rows[from],
                      n - i < BLOCK ? n - i : BLOCK);
}
