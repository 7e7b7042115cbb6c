/* convert - see convert.h. */
#include "libckpt/convert.h"

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <sys/platform/x86.h>

#include "libckpt/base/half.h"

#define BLOCK 512               /* elements staged between two dtypes */

/* Convert between an array of a stored type, at any alignment, and a staging array. */
#define LOAD(name, type, wide, expr)                                                          \
    static void name(void *dst, const void *src, size_t n)                                    \
    {                                                                                         \
        for (size_t i = 0; i < n; i++) {                                                      \
            type v;                                                                           \
            wide r;                                                                           \
            memcpy(&v, (const unsigned char *)src + i * sizeof v, sizeof v);                  \
            r = expr;                                                                         \
            memcpy((unsigned char *)dst + i * sizeof r, &r, sizeof r);                        \
        }                                                                                     \
    }
#define STORE(name, type, wide, expr) LOAD(name, wide, type, expr)

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

LOAD(load_f64, double, double, v)
STORE(store_f64, double, double, v)

/* Integers pass through 64 bits: sign-extended on the way in, truncated on the way out. */
LOAD(load_bool, uint8_t, uint64_t, v != 0)
LOAD(load_u8, uint8_t, uint64_t, v)
LOAD(load_i8, int8_t, uint64_t, (uint64_t)(int64_t)v)
LOAD(load_u16, uint16_t, uint64_t, v)
LOAD(load_i16, int16_t, uint64_t, (uint64_t)(int64_t)v)
LOAD(load_u32, uint32_t, uint64_t, v)
LOAD(load_i32, int32_t, uint64_t, (uint64_t)(int64_t)v)
LOAD(load_64, uint64_t, uint64_t, v)
STORE(store_bool, uint8_t, uint64_t, v != 0)
STORE(store_8, uint8_t, uint64_t, (uint8_t)v)
STORE(store_16, uint16_t, uint64_t, (uint16_t)v)
STORE(store_32, uint32_t, uint64_t, (uint32_t)v)
STORE(store_64, uint64_t, uint64_t, v)

/* Each dtype passes through a staging type that holds all its values: float, double or 64 bits. */
static const struct row {
    void (*load_f)(void *dst, const void *src, size_t n);
    void (*store_f)(void *dst, const void *src, size_t n);
    void (*load_d)(void *dst, const void *src, size_t n);
    void (*store_d)(void *dst, const void *src, size_t n);
    void (*load_i)(void *dst, const void *src, size_t n);
    void (*store_i)(void *dst, const void *src, size_t n);
    double low, high;           /* integers: the range that other values are clamped to */
} rows[CKPT_DTYPE_COUNT] = {
    [CKPT_BOOL] = {.load_i = load_bool, .store_i = store_bool, .high = 1},
    [CKPT_U8] = {.load_i = load_u8, .store_i = store_8, .high = UINT8_MAX},
    [CKPT_I8] = {.load_i = load_i8, .store_i = store_8, .low = INT8_MIN, .high = INT8_MAX},
    [CKPT_U16] = {.load_i = load_u16, .store_i = store_16, .high = UINT16_MAX},
    [CKPT_I16] = {.load_i = load_i16, .store_i = store_16, .low = INT16_MIN, .high = INT16_MAX},
    [CKPT_U32] = {.load_i = load_u32, .store_i = store_32, .high = UINT32_MAX},
    [CKPT_I32] = {.load_i = load_i32, .store_i = store_32, .low = INT32_MIN, .high = INT32_MAX},
    [CKPT_U64] = {.load_i = load_64, .store_i = store_64, .high = 0x1p64},
    [CKPT_I64] = {.load_i = load_64, .store_i = store_64, .low = -0x1p63, .high = 0x1p63},
    [CKPT_F64] = {.load_d = load_f64, .store_d = store_f64},
    [CKPT_F16] = {.load_f = load_f16, .store_f = store_f16},
    [CKPT_BF16] = {.load_f = load_bf16, .store_f = store_bf16},
    [CKPT_F32] = {.load_f = load_f32, .store_f = store_f32},
    [CKPT_F8_E4M3] = {.load_f = load_e4m3, .store_f = store_e4m3},
    [CKPT_F8_E5M2] = {.load_f = load_e5m2, .store_f = store_e5m2},
    [CKPT_F8_E4M3FNUZ] = {.load_f = load_e4m3fnuz, .store_f = store_e4m3fnuz},
    [CKPT_F8_E5M2FNUZ] = {.load_f = load_e5m2fnuz, .store_f = store_e5m2fnuz},
};

static bool known(enum ckpt_dtype t)
{
    return (unsigned)t < CKPT_DTYPE_COUNT &&
           (rows[t].load_f || rows[t].load_d || rows[t].load_i);
}

bool ckpt_convert_can(enum ckpt_dtype to, enum ckpt_dtype from)
{
    return (to == from && ckpt_dtype_size(to) > 0) || (known(to) && known(from));
}

/* -- vector paths: the same bits as the loops above, which tests compare ------------------- */

typedef void convert_fn(unsigned char *dst, const unsigned char *src, size_t n);

__attribute__((target("avx2"))) static void bf16_to_f32(unsigned char *dst,
                                                        const unsigned char *src, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i_u *)(src + 2 * i));

        _mm256_storeu_si256((__m256i_u *)(dst + 4 * i),
                            _mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
    }
    load_bf16(dst + 4 * i, src + 2 * i, n - i);
}

__attribute__((target("avx2"))) static void f32_to_bf16(unsigned char *dst,
                                                        const unsigned char *src, size_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    const __m256i inf = _mm256_set1_epi32(0x7f800000);
    const __m256i bias = _mm256_set1_epi32(0x7fff), one = _mm256_set1_epi32(1);
    const __m256i nan = _mm256_set1_epi32(0x7fc0);
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_loadu_si256((const __m256i_u *)(src + 4 * i));
        __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), one);
        __m256i r = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(bias, odd)), 16);
        __m256i is_nan = _mm256_cmpgt_epi32(_mm256_and_si256(u, magnitude), inf);
        __m256i p;

        r = _mm256_blendv_epi8(r, nan, is_nan);
        p = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
        _mm_storeu_si128((__m128i_u *)(dst + 2 * i), _mm256_castsi256_si128(p));
    }
    store_bf16(dst + 2 * i, src + 4 * i, n - i);
}

__attribute__((target("avx2,f16c"))) static void f16_to_f32(unsigned char *dst,
                                                            const unsigned char *src, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i_u *)(src + 2 * i));

        _mm256_storeu_si256((__m256i_u *)(dst + 4 * i),
                            _mm256_castps_si256(_mm256_cvtph_ps(h)));
    }
    load_f16(dst + 4 * i, src + 2 * i, n - i);
}

__attribute__((target("avx2,f16c"))) static void f32_to_f16(unsigned char *dst,
                                                            const unsigned char *src, size_t n)
{
    size_t i = 0;

    for (; i + 8 <= n; i += 8) {
        __m256i u = _mm256_loadu_si256((const __m256i_u *)(src + 4 * i));

        _mm_storeu_si128((__m128i_u *)(dst + 2 * i),
                         _mm256_cvtps_ph(_mm256_castsi256_ps(u), _MM_FROUND_TO_NEAREST_INT));
    }
    store_f16(dst + 2 * i, src + 4 * i, n - i);
}

/* The conversions that are frequent in checkpoints; false when there is no fast way. */
static bool convert_fast(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                         size_t n)
{
    /* glibc detects it at start-up; __builtin_cpu_supports lacks f16c in some compilers. */
    bool avx2 = CPU_FEATURE_ACTIVE(AVX2);
    bool f16c = avx2 && CPU_FEATURE_ACTIVE(F16C);
    convert_fn *fn = to == CKPT_F32 && from == CKPT_BF16 && avx2   ? bf16_to_f32
                     : to == CKPT_BF16 && from == CKPT_F32 && avx2 ? f32_to_bf16
                     : to == CKPT_F32 && from == CKPT_F16 && f16c  ? f16_to_f32
                     : to == CKPT_F16 && from == CKPT_F32 && f16c  ? f32_to_f16
                                                                   : NULL;

    if (fn)
        fn(dst, src, n);
    return fn != NULL;
}

/* -- any dtype to any other, a block at a time --------------------------------------------- */

struct stage {
    float    f[BLOCK];
    double   d[BLOCK];
    uint64_t i[BLOCK];
    float    of_byte[256];      /* the 256 values of an 8-bit float; filled when n makes that pay */
    bool     look_up;
};

static void from_float(void *dst, enum ckpt_dtype to, const float *f, size_t n)
{
    if (!convert_fast(dst, to, f, CKPT_F32, n))
        rows[to].store_f(dst, f, n);
}

/* Truncate towards zero and clamp; NaN becomes 0.  BOOL: whether the value differs from 0. */
static void int_of_double(void *dst, enum ckpt_dtype to, struct stage *s, size_t n)
{
    double low = rows[to].low, high = rows[to].high;

    for (size_t k = 0; k < n; k++) {
        double v = s->d[k];

        if (to == CKPT_BOOL)
            s->i[k] = v != 0;
        else if (isnan(v))
            s->i[k] = 0;
        else if (to == CKPT_U64)
            s->i[k] = v <= low ? 0 : v >= high ? UINT64_MAX : (uint64_t)v;
        else if (v >= high)             /* for I64 high is 2^63, one more than its largest */
            s->i[k] = to == CKPT_I64 ? INT64_MAX : (uint64_t)high;
        else
            s->i[k] = (uint64_t)(int64_t)(v <= low ? low : v);
    }
    rows[to].store_i(dst, s->i, n);
}

static void from_double(void *dst, enum ckpt_dtype to, struct stage *s, size_t n)
{
    if (rows[to].store_d) {
        rows[to].store_d(dst, s->d, n);
    } else if (rows[to].store_i) {
        int_of_double(dst, to, s, n);
    } else {                            /* as torch does: first to float, then to the small type */
        for (size_t k = 0; k < n; k++)
            s->f[k] = (float)s->d[k];
        from_float(dst, to, s->f, n);
    }
}

/* Convert 64-bit integers with one rounding: a double could not hold them. */
static void from_int(void *dst, enum ckpt_dtype to, struct stage *s, bool is_unsigned, size_t n)
{
    if (rows[to].store_i) {
        rows[to].store_i(dst, s->i, n);
    } else if (rows[to].store_d) {
        for (size_t k = 0; k < n; k++)
            s->d[k] = is_unsigned ? (double)s->i[k] : (double)(int64_t)s->i[k];
        rows[to].store_d(dst, s->d, n);
    } else {
        for (size_t k = 0; k < n; k++)
            s->f[k] = is_unsigned ? (float)s->i[k] : (float)(int64_t)s->i[k];
        from_float(dst, to, s->f, n);
    }
}

static void convert_block(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                          struct stage *s, size_t n)
{
    if (rows[from].load_i) {
        rows[from].load_i(s->i, src, n);
        from_int(dst, to, s, from == CKPT_U64, n);
        return;
    }
    if (rows[from].load_d) {
        rows[from].load_d(s->d, src, n);
        from_double(dst, to, s, n);
        return;
    }
    if (s->look_up)
        for (size_t k = 0; k < n; k++)
            s->f[k] = s->of_byte[((const unsigned char *)src)[k]];
    else if (!convert_fast(s->f, CKPT_F32, src, from, n))
        rows[from].load_f(s->f, src, n);
    if (rows[to].store_f) {
        from_float(dst, to, s->f, n);
        return;
    }
    for (size_t k = 0; k < n; k++)
        s->d[k] = (double)s->f[k];
    from_double(dst, to, s, n);
}

static void convert_any(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                        size_t n)
{
    size_t in = ckpt_dtype_size(from), out = ckpt_dtype_size(to);
    unsigned char byte[256];
    struct stage s;

    s.look_up = in == 1 && rows[from].load_f && n > 4 * sizeof byte;
    if (s.look_up) {
        for (size_t i = 0; i < sizeof byte; i++)
            byte[i] = (unsigned char)i;
        rows[from].load_f(s.of_byte, byte, sizeof byte);
    }
    for (size_t i = 0; i < n; i += BLOCK)
        convert_block((unsigned char *)dst + i * out, to,
                      (const unsigned char *)src + i * in, from, &s,
                      n - i < BLOCK ? n - i : BLOCK);
}

void ckpt_convert(void *dst, enum ckpt_dtype to, const void *src, enum ckpt_dtype from,
                  size_t n)
{
    if (n == 0)
        return;
    if (to == from)
        memmove(dst, src, n * ckpt_dtype_size(from));
    else if (!convert_fast(dst, to, src, from, n))
        convert_any(dst, to, src, from, n);
}
