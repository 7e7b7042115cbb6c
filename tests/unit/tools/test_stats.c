/* stats, measure: the numbers are those of a plain sum in long double, however it is cut. */
#include "tests/unit/unit.h"

#include <math.h>

#include "libckpt/ckpt.h"
#include "tools/inspect/inspect.h"

#define MOST 20001

static double value[MOST];

/* Deterministic noise in [-1, 1). */
static double noise(size_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;

    x ^= x >> 29;
    x *= 0xbf58476d1ce4e5b9ull;
    x ^= x >> 32;
    return (double)(x >> 11) / (double)(1ull << 52) - 1;
}

/* value[0..n) as dtype, offset by shift bytes from an aligned place; value becomes what that
 * dtype holds. */
static void *as(enum ckpt_dtype dtype, size_t n, size_t shift)
{
    unsigned char *p = malloc(n * 8 + 64);

    assert_non_null(p);
    ckpt_convert(p + shift, dtype, value, CKPT_F64, n);
    ckpt_convert(value, CKPT_F64, p + shift, dtype, n);
    return p;
}

static void check_to(const struct stats *s, size_t n, long double digits)
{
    long double sum = 0, m2 = 0, mean;
    double low = INFINITY, high = -INFINITY;
    int64_t count = 0, nan = 0, inf = 0, zero = 0;

    for (size_t i = 0; i < n; i++) {
        nan += isnan(value[i]) != 0;
        inf += isinf(value[i]) != 0;
        if (!isfinite(value[i]))
            continue;
        zero += value[i] == 0;
        low = fmin(low, value[i]);
        high = fmax(high, value[i]);
        sum += value[i];
        count++;
    }
    assert_int_equal(s->n, count);
    assert_int_equal(s->n_nan, nan);
    assert_int_equal(s->n_inf, inf);
    assert_int_equal(s->n_zero, zero);
    if (count == 0)
        return;
    mean = sum / count;
    for (size_t i = 0; i < n; i++)
        m2 += isfinite(value[i]) ? (value[i] - mean) * (value[i] - mean) : 0;
    assert_true(s->min == low && s->max == high);
    assert_true(fabsl(s->mean - mean) <= digits * (fabsl(mean) + sqrtl(m2 / count)));
    if (count > 1)
        assert_true(fabsl(stats_std(s) - sqrtl(m2 / (count - 1))) <=
                    1e4L * digits * sqrtl(m2 / (count - 1)));
    else
        assert_true(stats_std(s) == 0);
}

static void check(const struct stats *s, size_t n) { check_to(s, n, 1e-13L); }

TEST(all_lengths)
{
    static const enum ckpt_dtype dtype[] = {CKPT_F32, CKPT_BF16, CKPT_F16, CKPT_F64, CKPT_I32,
                                            CKPT_F8_E4M3, CKPT_U8};
    static const size_t length[] = {0, 1, 2, 7, 8, 9, 31, 4095, 4096, 4097, MOST};

    for (size_t d = 0; d < sizeof dtype / sizeof dtype[0]; d++)
        for (size_t k = 0; k < sizeof length / sizeof length[0]; k++) {
            struct stats s = {0};
            void *p;

            for (size_t i = 0; i < length[k]; i++)
                value[i] = floor(noise(i) * 50) / 8;
            p = as(dtype[d], length[k], 0);
            stats_add(&s, p, dtype[d], length[k]);
            /* Values of 16 bits are summed in f32: more digits than they have. */
            check_to(&s, length[k],
                     dtype[d] == CKPT_BF16 || dtype[d] == CKPT_F16 ? 1e-7L : 1e-13L);
            free(p);
        }
}

/* A mean far from zero costs no digits; nor does a tensor whose parts lie far apart. */
TEST(far_means)
{
    for (int kind = 0; kind < 3; kind++) {
        struct stats s = {0};
        void *p;

        for (size_t i = 0; i < MOST; i++)
            value[i] = kind == 0 ? 30000 + noise(i) / 64
                       : kind == 1 ? (i < MOST / 2 ? -5000 : 9000) + noise(i)
                                   : (i == 0 ? 1e6 : noise(i));
        p = as(CKPT_F32, MOST, 0);
        stats_add(&s, p, CKPT_F32, MOST);
        check(&s, MOST);
        free(p);
        memset(&s, 0, sizeof s);
        p = as(CKPT_BF16, MOST, 0);
        stats_add(&s, p, CKPT_BF16, MOST);
        check_to(&s, MOST, 3e-7L);
        free(p);
    }
}

/* Extremes and zeros are seen in the bits of f16 and bf16: of one sign, zeros of either, both. */
TEST(signs)
{
    static const enum ckpt_dtype dtype[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

    for (size_t d = 0; d < 3; d++)
        for (int kind = 0; kind < 7; kind++) {
            struct stats s = {0};
            void *p;

            for (size_t i = 0; i < MOST; i++) {
                double size = 0.25 + fabs(noise(i));
                bool odd = i % 3 == 0;

                value[i] = kind == 0   ? size
                           : kind == 1 ? -size
                           : kind == 2 ? (odd ? 0.0 : size)
                           : kind == 3 ? (odd ? -0.0 : -size)
                           : kind == 4 ? (odd ? -0.0 : size)
                           : kind == 5 ? (odd ? 0.0 : -0.0)
                                       : (odd ? (i & 1 ? 0.0 : -0.0) : i & 1 ? size : -size);
            }
            p = as(dtype[d], MOST, 0);
            stats_add(&s, p, dtype[d], MOST);
            check_to(&s, MOST, d == 0 ? 1e-13L : 1e-7L);
            assert_false(signbit(s.min) && s.min == 0);
            free(p);
        }
}

/* Squares beyond f32 are taken again where they fit. */
TEST(huge)
{
    struct stats s = {0};
    void *p;

    for (size_t i = 0; i < MOST; i++)
        value[i] = noise(i) * 3e38;
    p = as(CKPT_BF16, MOST, 0);
    stats_add(&s, p, CKPT_BF16, MOST);
    check(&s, MOST);
    free(p);
}

TEST(what_is_no_number)
{
    static const enum ckpt_dtype dtype[] = {CKPT_F32, CKPT_BF16, CKPT_F64};

    for (size_t d = 0; d < 3; d++) {
        struct stats s = {0};
        void *p;

        for (size_t i = 0; i < MOST; i++)
            value[i] = i % 97 == 3 ? NAN : i % 89 == 5 ? -INFINITY : i % 7 ? noise(i) : -0.0;
        value[0] = INFINITY;
        p = as(dtype[d], MOST, 0);
        stats_add(&s, p, dtype[d], MOST);
        check_to(&s, MOST, dtype[d] == CKPT_BF16 ? 1e-7L : 1e-13L);
        free(p);
        memset(&s, 0, sizeof s);
        for (size_t i = 0; i < 100; i++)
            value[i] = NAN;
        p = as(dtype[d], 100, 0);
        stats_add(&s, p, dtype[d], 100);
        check(&s, 100);
        free(p);
    }
}

/* Any cut and any place in memory give the same, to rounding. */
TEST(cuts)
{
    static const size_t cut[] = {0, 1, 13, 4096, 9000, MOST};
    struct stats whole = {0};

    for (size_t shift = 0; shift < 4; shift++) {
        struct stats s = {0};
        unsigned char *p;

        for (size_t i = 0; i < MOST; i++)
            value[i] = 3 + noise(i);
        p = as(CKPT_F32, MOST, shift);
        for (size_t c = 0; c + 1 < sizeof cut / sizeof cut[0]; c++) {
            struct stats part = {0};

            stats_add(&part, p + shift + 4 * cut[c], CKPT_F32, cut[c + 1] - cut[c]);
            stats_join(&s, &part);
        }
        stats_join(&s, &whole);             /* nothing adds nothing */
        check(&s, MOST);
        free(p);
    }
}

static struct ckpt_source *golden(void)
{
    struct ckpt_err err = {0};
    struct ckpt_source *src;

    if (ckpt_open(&src, "tests/golden/torch/many_tensors.pt", NULL, &err))
        fail_msg("%s", err.text);
    return src;
}

/* As many workers as you like: the same bits, digests too. */
TEST_ERR(workers)
{
    struct ckpt_source *src = golden();
    size_t n = ckpt_source_count(src);
    struct tensor_measure *a = calloc(n, sizeof *a), *b = calloc(n, sizeof *b);
    unsigned what = INSPECT_STATS | INSPECT_DIGEST;

    assert_int_equal(inspect_measure(a, src, NULL, n, what, 1, err), 0);
    assert_int_equal(inspect_measure(b, src, NULL, n, what, 4, err), 0);
    for (size_t k = 0; k < n; k++) {
        uint64_t counted = 0;

        assert_memory_equal(&a[k].s, &b[k].s, sizeof a->s);
        assert_memory_equal(a[k].hist, b[k].hist, sizeof a->hist);
        assert_string_equal(a[k].sha256, b[k].sha256);
        assert_int_equal(strlen(a[k].sha256), 64);
        for (size_t i = 0; i < MEASURE_BINS; i++)
            counted += a[k].hist[i];
        assert_true(a[k].hist_high > a[k].hist_low ? counted == (uint64_t)a[k].s.n : !counted);
    }
    free(a);
    free(b);
    ckpt_source_close(src);
}

TEST(lines_of_blocks)
{
    struct tensor_measure m = {.hist_low = -1, .hist_high = 1, .hist = {0, 1, 4, 8}};
    char line[MEASURE_BINS * 3 + 1], json[512];

    assert_string_equal(inspect_measure_spark(line, &m), " \u2581\u2584\u2588            ");
    assert_string_equal(inspect_measure_histogram(json, &m),
                        "{\"low\": -1, \"high\": 1, \"counts\": "
                        "[0, 1, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]}");
    memset(m.hist, 0xff, sizeof m.hist);
    m.hist_low = m.hist_high = -1.23456789e-300;
    assert_true(strlen(inspect_measure_histogram(json, &m)) < 400);
}
