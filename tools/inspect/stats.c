/* stats - see stats.h. */
#include "tools/inspect/stats.h"

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/platform/x86.h>

#include "libckpt/convert.h"

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

/* The block's sums into s: it has n finite values. */
static void take(struct stats *s, const struct sums *b, size_t n, double shift)
{
    double off = b->d / (double)n, m2 = b->dd - b->d * off;
    const struct stats block = {.n = (int64_t)n, .n_zero = b->zeros, .mean = shift + off,
                                .m2 = m2 > 0 ? m2 : 0, .min = b->low, .max = b->high};

    stats_join(s, &block);
}

static const struct sums none = {.low = INFINITY, .high = -INFINITY};

/* Near the values: what was seen so far, else the first one. */
static double shift_of(const struct stats *s, double first)
{
    return s->n && isfinite(s->mean) ? s->mean : isfinite(first) ? first : 0;
}

static void add_f64(struct stats *s, double *v, size_t n)
{
    struct sums b = none;
    double shift = shift_of(s, v[0]);
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
        shift = n ? shift_of(s, v[0]) : 0;
        sum_f64(&b, v, n, shift);
    }
    if (n)
        take(s, &b, n, shift);
}

static void widen(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    double wide[BLOCK];

    ckpt_convert(wide, CKPT_F64, values, dtype, n);
    add_f64(s, wide, n);
}

/* Dtypes that f32 holds, by vectors of them. */
static void add_f32(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    const size_t whole = n - n % 8;
    const float *v = values;
    struct sums b = none;
    float wide[BLOCK];
    double shift;

    if (dtype != CKPT_F32 || (uintptr_t)values % sizeof *v) {
        ckpt_convert(wide, CKPT_F32, values, dtype, n);
        v = wide;
    }
    shift = shift_of(s, v[0]);
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

void stats_add(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n)
{
    bool narrow = (dtype == CKPT_F32 || dtype == CKPT_F16 || dtype == CKPT_BF16) &&
                  CPU_FEATURE_ACTIVE(AVX2) && CPU_FEATURE_ACTIVE(FMA);

    for (size_t at = 0, k; at < n; at += k) {
        const unsigned char *p = (const unsigned char *)values + at * ckpt_dtype_size(dtype);

        k = n - at < BLOCK ? n - at : BLOCK;
        if (narrow)
            add_f32(s, p, dtype, k);
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
