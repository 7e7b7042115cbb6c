/* stats - see stats.h. */
#include "tools/inspect/stats.h"

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <sys/platform/x86.h>

#include "libckpt/convert.h"
#include "libckpt/mem.h"

#define BLOCK 16384
#define WIDE  4096              /* bytes of a block as doubles: fits in the L1 cache */
#define AHEAD 16384             /* bytes: prefetch distance of the sums */

/* The result of one block: sums over d = value - shift. */
struct sums {
    double  d, dd, low, high;
    int64_t zeros;
    bool    odd;                /* some value is not finite, and the other fields are meaningless */
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

/*
 * Each run is read twice while it is in the L1 cache, first for its extremes, then for its sums:
 * both at once would not fit in 16 registers.
 */
#define RUN 512

/* Half a register of f32 as doubles, minus the shift. */
__attribute__((target("avx2"))) static inline __m256d wide(const float *v, __m256d shift)
{
    return _mm256_sub_pd(_mm256_cvtps_pd(_mm_loadu_ps(v)), shift);
}

/* d and q have four sums each.  A value that is not finite makes them not finite. */
__attribute__((target("avx2,fma"))) static void run_f32(__m256d *d, __m256d *q, const float *v,
                                                        __m256d k)
{
    __m256d d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
    __m256d q0 = q[0], q1 = q[1], q2 = q[2], q3 = q[3];

    for (const float *end = v + RUN; v < end; v += 16) {
        __m256d x = wide(v, k), y = wide(v + 4, k), z = wide(v + 8, k), w = wide(v + 12, k);

        d0 = _mm256_add_pd(d0, x);
        d1 = _mm256_add_pd(d1, y);
        d2 = _mm256_add_pd(d2, z);
        d3 = _mm256_add_pd(d3, w);
        q0 = _mm256_fmadd_pd(x, x, q0);
        q1 = _mm256_fmadd_pd(y, y, q1);
        q2 = _mm256_fmadd_pd(z, z, q2);
        q3 = _mm256_fmadd_pd(w, w, q3);
    }
    d[0] = d0, d[1] = d1, d[2] = d2, d[3] = d3;
    q[0] = q0, q[1] = q1, q[2] = q2, q[3] = q3;
}

/* n is a multiple of RUN. */
__attribute__((target("avx2,fma"))) static void sum_f32(struct sums *s, const float *v, size_t n,
                                                        double shift)
{
    const __m256d k = _mm256_set1_pd(shift), none = _mm256_setzero_pd();
    const __m256 zero = _mm256_setzero_ps();
    __m256d d[4] = {none, none, none, none}, q[4] = {none, none, none, none};
    __m256 low = _mm256_loadu_ps(v), high = low;
    __m256i zeros = _mm256_setzero_si256();
    int32_t count[8];
    float l[8], h[8];

    for (size_t i = 0; i < n; i += RUN) {
        for (const float *p = v + i; p < v + i + RUN; p += 16) {
            __m256 x = _mm256_loadu_ps(p), y = _mm256_loadu_ps(p + 8);

            _mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
            low = _mm256_min_ps(low, _mm256_min_ps(x, y));
            high = _mm256_max_ps(high, _mm256_max_ps(x, y));
            x = _mm256_cmp_ps(x, zero, _CMP_EQ_OQ);
            y = _mm256_cmp_ps(y, zero, _CMP_EQ_OQ);
            zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(x));
            zeros = _mm256_sub_epi32(zeros, _mm256_castps_si256(y));
        }
        run_f32(d, q, v + i, k);
    }
    _mm256_storeu_ps(l, low);
    _mm256_storeu_ps(h, high);
    _mm256_storeu_si256((__m256i *)count, zeros);
    for (size_t i = 0; i < 8; i++) {
        s->low = l[i] < s->low ? l[i] : s->low;
        s->high = h[i] > s->high ? h[i] : s->high;
        s->zeros += count[i];
    }
    s->d = lanes(_mm256_add_pd(d[0], d[2]), _mm256_add_pd(d[1], d[3]));
    s->dd = lanes(_mm256_add_pd(q[0], q[2]), _mm256_add_pd(q[1], q[3]));
    s->odd = !isfinite(s->dd);
}

/*
 * Extremes of 16-bit floats from their bits: as signed numbers, positive floats ascend from 0; as
 * unsigned ones, negative floats follow, a larger number being further from 0.
 */
struct extremes {
    __m256i low, high, ulow, uhigh;
};

__attribute__((target("avx2"))) static void run_extremes(struct extremes *e, const uint16_t *v)
{
    __m256i low = e->low, high = e->high, ulow = e->ulow, uhigh = e->uhigh;

    for (const uint16_t *end = v + RUN; v < end; v += 32) {
        __m256i x = _mm256_loadu_si256((const __m256i *)v);
        __m256i y = _mm256_loadu_si256((const __m256i *)(v + 16));

        _mm_prefetch((const char *)v + AHEAD, _MM_HINT_T0);
        low = _mm256_min_epi16(low, _mm256_min_epi16(x, y));
        high = _mm256_max_epi16(high, _mm256_max_epi16(x, y));
        ulow = _mm256_min_epu16(ulow, _mm256_min_epu16(x, y));
        uhigh = _mm256_max_epu16(uhigh, _mm256_max_epu16(x, y));
    }
    *e = (struct extremes){low, high, ulow, uhigh};
}

__attribute__((target("avx2"))) static int64_t zeros_of(const uint16_t *v, size_t n)
{
    const __m256i none = _mm256_setzero_si256();
    int64_t zeros = 0;

    for (size_t i = 0; i < n; i += 16) {
        __m256i x = _mm256_slli_epi16(_mm256_loadu_si256((const __m256i *)(v + i)), 1);
        int is = _mm256_movemask_epi8(_mm256_cmpeq_epi16(x, none));

        zeros += __builtin_popcount((unsigned)is) / 2;
    }
    return zeros;
}

/* Extremes of the block's n values; zeros are counted if there are any. */
__attribute__((target("avx2"))) static void take_extremes(struct sums *s,
                                                          const struct extremes *e,
                                                          const uint16_t *v, size_t n,
                                                          enum ckpt_dtype dtype)
{
    int16_t low[16], high[16];
    uint16_t ulow[16], uhigh[16], bits[2];
    float f[2];

    _mm256_storeu_si256((__m256i *)low, e->low);
    _mm256_storeu_si256((__m256i *)high, e->high);
    _mm256_storeu_si256((__m256i *)ulow, e->ulow);
    _mm256_storeu_si256((__m256i *)uhigh, e->uhigh);
    for (size_t i = 1; i < 16; i++) {
        low[0] = low[i] < low[0] ? low[i] : low[0];
        high[0] = high[i] > high[0] ? high[i] : high[0];
        ulow[0] = ulow[i] < ulow[0] ? ulow[i] : ulow[0];
        uhigh[0] = uhigh[i] > uhigh[0] ? uhigh[i] : uhigh[0];
    }
    bits[0] = low[0] < 0 ? uhigh[0] : ulow[0];          /* a negative value, or there is none */
    bits[1] = (uint16_t)(high[0] >= 0 ? high[0] : low[0]);
    ckpt_convert(f, CKPT_F32, bits, dtype, 2);
    s->low = f[0];
    s->high = f[1];
    if (ulow[0] == 0 || low[0] == INT16_MIN)
        s->zeros = zeros_of(v, n);
}

/* Add the sums of a run, as doubles, to those of the block. */
__attribute__((target("avx2"))) static inline __m256d add_lanes(__m256d sum, __m256 a, __m256 b)
{
    __m256 c = _mm256_add_ps(a, b);

    return _mm256_add_pd(_mm256_add_pd(sum, _mm256_cvtps_pd(_mm256_castps256_ps128(c))),
                         _mm256_cvtps_pd(_mm256_extractf128_ps(c, 1)));
}

/*
 * 16-bit values have three digits: summing a run of them in f32 loses no relevant digit, and is
 * twice as fast.  n is a multiple of RUN.  split converts sixteen values to two times eight
 * floats, in any order.  A value that is not finite, or a square beyond f32, makes the sums not
 * finite.
 */
#define NARROW(name, features, dtype, split)                                                  \
    __attribute__((target(features))) static void name(struct sums *s, const uint16_t *v,    \
                                                       size_t n, float shift)                \
    {                                                                                         \
        const __m256 k = _mm256_set1_ps(shift), zero = _mm256_setzero_ps();                  \
        const __m256i first = _mm256_loadu_si256((const __m256i *)v);                        \
        struct extremes e = {first, first, first, first};                                    \
        __m256d sum = _mm256_setzero_pd(), square = sum;                                     \
                                                                                              \
        for (size_t i = 0; i < n; i += RUN) {                                                \
            __m256 d0 = zero, d1 = zero, d2 = zero, d3 = zero;                               \
            __m256 q0 = zero, q1 = zero, q2 = zero, q3 = zero;                               \
                                                                                              \
            run_extremes(&e, v + i);                                                         \
            for (const uint16_t *p = v + i; p < v + i + RUN; p += 32) {                      \
                __m256 a, b, c, d;                                                           \
                                                                                              \
                split(a, b, p);                                                              \
                split(c, d, p + 16);                                                         \
                a = _mm256_sub_ps(a, k);                                                     \
                b = _mm256_sub_ps(b, k);                                                     \
                c = _mm256_sub_ps(c, k);                                                     \
                d = _mm256_sub_ps(d, k);                                                     \
                d0 = _mm256_add_ps(d0, a);                                                   \
                d1 = _mm256_add_ps(d1, b);                                                   \
                d2 = _mm256_add_ps(d2, c);                                                   \
                d3 = _mm256_add_ps(d3, d);                                                   \
                q0 = _mm256_fmadd_ps(a, a, q0);                                              \
                q1 = _mm256_fmadd_ps(b, b, q1);                                              \
                q2 = _mm256_fmadd_ps(c, c, q2);                                              \
                q3 = _mm256_fmadd_ps(d, d, q3);                                              \
            }                                                                                 \
            sum = add_lanes(add_lanes(sum, d0, d1), d2, d3);                                 \
            square = add_lanes(add_lanes(square, q0, q1), q2, q3);                           \
        }                                                                                     \
        take_extremes(s, &e, v, n, dtype);                                                   \
        s->d = lanes(sum, _mm256_setzero_pd());                                              \
        s->dd = lanes(square, _mm256_setzero_pd());                                          \
        s->odd = !isfinite(s->dd);                                                           \
    }
#define SPLIT_BF16(a, b, p)                                                                   \
    b = _mm256_loadu_ps((const float *)(const void *)(p));                                   \
    a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(b), 16));                  \
    b = _mm256_and_ps(b, _mm256_castsi256_ps(_mm256_set1_epi32((int)0xffff0000)))
#define SPLIT_F16(a, b, p)                                                                    \
    a = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p)));                              \
    b = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)((p) + 8)))

NARROW(sum_bf16, "avx2,fma", CKPT_BF16, SPLIT_BF16)
NARROW(sum_f16, "avx2,fma,f16c", CKPT_F16, SPLIT_F16)

/* Add the block's sums, of n finite values, to s. */
static void take(struct stats *s, const struct sums *b, size_t n, double shift)
{
    double off = b->d / (double)n, m2 = b->dd - b->d * off;
    const struct stats block = {.n = (int64_t)n, .n_zero = b->zeros, .mean = shift + off,
                                .m2 = m2 > 0 ? m2 : 0, .min = b->low, .max = b->high};

    stats_join(s, &block);
}

static const struct sums none = {.low = INFINITY, .high = -INFINITY};

/* A shift close to the values: their mean so far, else the median of three. */
static double shift_of(const struct stats *s, const void *v, enum ckpt_dtype dtype, size_t n)
{
    const unsigned char *p = v;
    double a[3], middle;

    if (s->n && isfinite(s->mean))
        return s->mean;
    for (size_t i = 0; i < 3; i++)
        ckpt_convert(&a[i], CKPT_F64, p + i * (n - 1) / 2 * ckpt_dtype_size(dtype), dtype, 1);
    middle = fmax(fmin(a[0], a[1]), fmin(fmax(a[0], a[1]), a[2]));
    return isfinite(middle) ? middle : 0;
}

static void add_f64(struct stats *s, double *v, size_t n)
{
    struct sums b = none;
    double shift = shift_of(s, v, CKPT_F64, n);
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
        shift = n ? shift_of(s, v, CKPT_F64, n) : 0;
        sum_f64(&b, v, n, shift);
    }
    if (n)
        take(s, &b, n, shift);
}

static void widen(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    CKPT_UNSET double wide[WIDE];

    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < WIDE ? n - at : WIDE;
        ckpt_convert(wide, CKPT_F64, (const unsigned char *)values + at * ckpt_dtype_size(dtype),
                     dtype, k);
        add_f64(s, wide, k);
    }
}

static void add_f32(struct stats *s, const float *v, size_t n)
{
    const size_t whole = n - n % RUN;
    struct sums b = none;
    double shift = shift_of(s, v, CKPT_F32, n);

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
    float shift = (float)shift_of(s, v, dtype, n);

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
    double all = (double)s->n + (double)other->n, delta = other->mean - s->mean;

    s->n_nan += other->n_nan;
    s->n_inf += other->n_inf;
    s->n_zero += other->n_zero;
    if (other->n == 0)
        return;
    s->min = s->n == 0 || other->min < s->min ? other->min + 0.0 : s->min;      /* no -0 */
    s->max = s->n == 0 || other->max > s->max ? other->max + 0.0 : s->max;
    s->m2 += other->m2 + delta * delta * ((double)s->n * (double)other->n / all);
    s->mean += delta * ((double)other->n / all);
    s->n += other->n;
}

double stats_std(const struct stats *s)
{
    return s->n > 1 ? sqrt(s->m2 / (double)(s->n - 1)) : 0;
}
