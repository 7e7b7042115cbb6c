/* stats - see stats.h. */
#include "tools/inspect/stats.h"

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/platform/x86.h>

#include "libckpt/convert.h"
#include "libckpt/mem.h"

#define BLOCK 4096              /* stays in the nearest cache */

/* What one block gives: sums over d = value - shift. */
struct sums {
    double  d, dd, low, high;
    int64_t zeros;
    bool    odd;                /* some value is not finite: the rest means nothing */
};

static void sum_f64(struct sums *s, const double *v, size_t n, double shift)
{
    for (size_t i = 0; i < n; i++) {
        double d = v[i] - shift;

        s->d += d;
        s->dd += d * d;
        s->low = v[i] < s->low ? v[i] : s->low;
        s->high = v[i] > s->high ? v[i] : s->high;
        s->zeros += v[i] == 0;
        s->odd |= !isfinite(v[i]);
    }
}

__attribute__((target("avx2,fma"))) static double lanes(__m256d a, __m256d b)
{
    double v[4];

    _mm256_storeu_pd(v, _mm256_add_pd(a, b));
    return (v[0] + v[1]) + (v[2] + v[3]);
}

/* n is a multiple of 8. */
__attribute__((target("avx2,fma"))) static void sum_f32(struct sums *s, const float *v, size_t n,
                                                        double shift)
{
    __m256d k = _mm256_set1_pd(shift), d0 = _mm256_setzero_pd(), d1 = d0, q0 = d0, q1 = d0;
    __m256 zero = _mm256_setzero_ps(), low = _mm256_loadu_ps(v), high = low, odd = zero;
    __m256i zeros = _mm256_setzero_si256();
    int32_t count[8];
    float l[8], h[8];

    for (size_t i = 0; i < n; i += 8) {
        __m256 x = _mm256_loadu_ps(v + i), nothing = _mm256_sub_ps(x, x);
        __m256d a = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_castps256_ps128(x)), k);
        __m256d b = _mm256_sub_pd(_mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)), k);
        __m256 is_zero = _mm256_cmp_ps(x, zero, _CMP_EQ_OQ);

        odd = _mm256_or_ps(odd, _mm256_cmp_ps(nothing, nothing, _CMP_UNORD_Q));
        zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(is_zero));
        low = _mm256_min_ps(low, x);
        high = _mm256_max_ps(high, x);
        d0 = _mm256_add_pd(d0, a);
        d1 = _mm256_add_pd(d1, b);
        q0 = _mm256_fmadd_pd(a, a, q0);
        q1 = _mm256_fmadd_pd(b, b, q1);
    }
    _mm256_storeu_ps(l, low);
    _mm256_storeu_ps(h, high);
    _mm256_storeu_si256((__m256i *)count, zeros);
    for (size_t i = 0; i < 8; i++) {
        s->low = l[i] < s->low ? l[i] : s->low;
        s->high = h[i] > s->high ? h[i] : s->high;
        s->zeros += count[i];
    }
    s->d = lanes(d0, d1);
    s->dd = lanes(q0, q1);
    s->odd = _mm256_movemask_ps(odd) != 0;
}

/* The eight sums of a run, as doubles, onto those of the block. */
__attribute__((target("avx2"))) static inline __m256d add_lanes(__m256d sum, __m256 a)
{
    return _mm256_add_pd(_mm256_add_pd(sum, _mm256_cvtps_pd(_mm256_castps256_ps128(a))),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
}

__attribute__((target("avx2"))) static void take_lanes(struct sums *s, __m256 low, __m256 high,
                                                       __m256i zeros, __m256i size,
                                                       uint16_t infinite)
{
    uint16_t count[16], most[16];
    float l[8], h[8];

    _mm256_storeu_ps(l, low);
    _mm256_storeu_ps(h, high);
    _mm256_storeu_si256((__m256i *)count, zeros);
    _mm256_storeu_si256((__m256i *)most, size);
    for (size_t i = 0; i < 8; i++) {
        s->low = l[i] < s->low ? l[i] : s->low;
        s->high = h[i] > s->high ? h[i] : s->high;
        s->zeros += count[i] + count[i + 8];
        s->odd |= most[i] >= infinite || most[i + 8] >= infinite;
    }
}

/*
 * Values of 16 bits have three digits: sums of RUN of them in f32 lose none that count, and go
 * twice as fast.  Zeros and what is not finite are seen in the bits.  n is a multiple of RUN.
 * split makes two times eight floats of sixteen values, in any order.
 */
#define RUN 512
#define NARROW(name, features, split, infinite)                                               \
    __attribute__((target(features))) static void name(struct sums *s, const uint16_t *v,    \
                                                       size_t n, float shift)                \
    {                                                                                         \
        const __m256 k = _mm256_set1_ps(shift);                                              \
        const __m256i bits = _mm256_set1_epi16(0x7fff), none = _mm256_setzero_si256();       \
        __m256 low = _mm256_set1_ps(INFINITY), high = _mm256_set1_ps(-INFINITY);             \
        __m256d sum0 = _mm256_setzero_pd(), sum1 = sum0, square0 = sum0, square1 = sum0;     \
        __m256i zeros = none, most = none;                                                   \
                                                                                              \
        for (size_t i = 0; i < n; i += RUN) {                                                \
            __m256 d0 = _mm256_setzero_ps(), d1 = d0, q0 = d0, q1 = d0;                      \
                                                                                              \
            for (size_t j = i; j < i + RUN; j += 16) {                                       \
                __m256i raw = _mm256_loadu_si256((const __m256i *)(v + j));                  \
                __m256i size = _mm256_and_si256(raw, bits);                                  \
                __m256 a, b, da, db;                                                         \
                                                                                              \
                split(a, b, raw);                                                            \
                da = _mm256_sub_ps(a, k);                                                    \
                db = _mm256_sub_ps(b, k);                                                    \
                most = _mm256_max_epi16(most, size);                                         \
                zeros = _mm256_sub_epi16(zeros, _mm256_cmpeq_epi16(size, none));             \
                low = _mm256_min_ps(low, _mm256_min_ps(a, b));                               \
                high = _mm256_max_ps(high, _mm256_max_ps(a, b));                             \
                d0 = _mm256_add_ps(d0, da);                                                  \
                d1 = _mm256_add_ps(d1, db);                                                  \
                q0 = _mm256_fmadd_ps(da, da, q0);                                            \
                q1 = _mm256_fmadd_ps(db, db, q1);                                            \
            }                                                                                 \
            sum0 = add_lanes(sum0, d0);                                                      \
            sum1 = add_lanes(sum1, d1);                                                      \
            square0 = add_lanes(square0, q0);                                                \
            square1 = add_lanes(square1, q1);                                                \
        }                                                                                     \
        s->d = lanes(sum0, sum1);                                                            \
        s->dd = lanes(square0, square1);                                                     \
        take_lanes(s, low, high, zeros, most, infinite);                                     \
        s->odd |= !isfinite(s->dd);     /* beyond f32: again, in f64 */                      \
    }
#define SPLIT_BF16(a, b, raw)                                                                 \
    a = _mm256_castsi256_ps(_mm256_slli_epi32(raw, 16));                                     \
    b = _mm256_castsi256_ps(_mm256_and_si256(raw, _mm256_set1_epi32((int)0xffff0000)))
#define SPLIT_F16(a, b, raw)                                                                  \
    a = _mm256_cvtph_ps(_mm256_castsi256_si128(raw));                                        \
    b = _mm256_cvtph_ps(_mm256_extracti128_si256(raw, 1))

NARROW(sum_bf16, "avx2,fma", SPLIT_BF16, 0x7f80)
NARROW(sum_f16, "avx2,fma,f16c", SPLIT_F16, 0x7c00)

/* The block's sums into s: it has n finite values. */
static void take(struct stats *s, const struct sums *b, size_t n, double shift)
{
    double off = b->d / (double)n, m2 = b->dd - b->d * off;
    const struct stats block = {.n = (int64_t)n, .n_zero = b->zeros, .mean = shift + off,
                                .m2 = m2 > 0 ? m2 : 0, .min = b->low, .max = b->high};

    stats_join(s, &block);
}

static const struct sums none = {.low = INFINITY, .high = -INFINITY};

/* Near the values: what was seen so far, else the middle one of three. */
static double shift_of(const struct stats *s, double a, double b, double c)
{
    double middle = fmax(fmin(a, b), fmin(fmax(a, b), c));

    return s->n && isfinite(s->mean) ? s->mean : isfinite(middle) ? middle : 0;
}

static void add_f64(struct stats *s, double *v, size_t n)
{
    struct sums b = none;
    double shift = shift_of(s, v[0], v[n / 2], v[n - 1]);
    size_t k = 0;

    sum_f64(&b, v, n, shift);
    if (b.odd) {
        for (size_t i = 0; i < n; i++) {
            s->n_nan += isnan(v[i]) != 0;
            s->n_inf += isinf(v[i]) != 0;
            v[k] = v[i];
            k += isfinite(v[i]) != 0;
        }
        n = k;
        b = none;
        shift = n ? shift_of(s, v[0], v[n / 2], v[n - 1]) : 0;
        sum_f64(&b, v, n, shift);
    }
    if (n)
        take(s, &b, n, shift);
}

static void widen(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    CKPT_UNSET double wide[BLOCK];

    ckpt_convert(wide, CKPT_F64, values, dtype, n);
    add_f64(s, wide, n);
}

static void add_f32(struct stats *s, const float *v, size_t n)
{
    const size_t whole = n - n % 8;
    struct sums b = none;
    double shift = shift_of(s, v[0], v[n / 2], v[n - 1]);

    if (whole)
        sum_f32(&b, v, whole, shift);
    if (b.odd) {
        widen(s, v, CKPT_F32, n);
        return;
    }
    if (whole)
        take(s, &b, whole, shift);
    if (n > whole)
        widen(s, v + whole, CKPT_F32, n - whole);
}

static void add_narrow(struct stats *s, const uint16_t *v, enum ckpt_dtype dtype, size_t n)
{
    const size_t whole = n - n % RUN;
    struct sums b = none;
    float three[3], shift;

    for (size_t i = 0; i < 3; i++)
        ckpt_convert(&three[i], CKPT_F32, v + i * (n - 1) / 2, dtype, 1);
    shift = (float)shift_of(s, three[0], three[1], three[2]);
    if (whole && dtype == CKPT_BF16)
        sum_bf16(&b, v, whole, shift);
    else if (whole)
        sum_f16(&b, v, whole, shift);
    if (b.odd) {
        widen(s, v, dtype, n);
        return;
    }
    if (whole)
        take(s, &b, whole, shift);
    if (n > whole)
        widen(s, v + whole, dtype, n - whole);
}

void stats_add(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    bool avx2 = CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA);
    bool aligned = (uintptr_t)values % 4 == 0;
    bool f32 = avx2 && aligned && dtype == CKPT_F32;
    bool narrow = avx2 && aligned && (dtype == CKPT_BF16 ||
                                      (dtype == CKPT_F16 && CPU_FEATURE_ACTIVE(F16C)));

    for (size_t at = 0, k; at < n; at += k) {
        const void *p = (const unsigned char *)values + at * ckpt_dtype_size(dtype);

        k = n - at < BLOCK ? n - at : BLOCK;
        if (f32)
            add_f32(s, p, k);
        else if (narrow)
            add_narrow(s, p, dtype, k);
        else
            widen(s, p, dtype, k);
    }
}

void stats_join(struct stats *s, const struct stats *other)
{
    double all = (double)s->n + (double)other->n, apart = other->mean - s->mean;

    s->n_nan += other->n_nan;
    s->n_inf += other->n_inf;
    s->n_zero += other->n_zero;
    if (other->n == 0)
        return;
    s->min = s->n == 0 || other->min < s->min ? other->min + 0.0 : s->min;      /* no -0 */
    s->max = s->n == 0 || other->max > s->max ? other->max + 0.0 : s->max;
    s->m2 += other->m2 + apart * apart * ((double)s->n * (double)other->n / all);
    s->mean += apart * ((double)other->n / all);
    s->n += other->n;
}

double stats_std(const struct stats *s)
{
    return s->n > 1 ? sqrt(s->m2 / (double)(s->n - 1)) : 0;
}
