/* half - every pattern of every small float, against the definition and against torch. */
#include "tests/unit/unit.h"

#include <math.h>

#include "libckpt/base/half.h"

/* A format as IEEE 754 and the OCP and fnuz papers define it. */
struct format {
    const char *name;
    int         exp_bits, man_bits, bias;
    unsigned    n_finite;       /* codes 0..n_finite-1 are the magnitudes, in order */
    int         over;           /* code of what lies beyond: infinity, max, or -1 for NaN */
    int         fnuz;
    float (*decode)(unsigned v);
    unsigned (*encode)(float f);
};

static float d_f16(unsigned v) { return ckpt_f16_to_f32((uint16_t)v); }
static float d_bf16(unsigned v) { return ckpt_bf16_to_f32((uint16_t)v); }
static float d_e4m3(unsigned v) { return ckpt_f8_e4m3_to_f32((uint8_t)v); }
static float d_e5m2(unsigned v) { return ckpt_f8_e5m2_to_f32((uint8_t)v); }
static float d_e4m3z(unsigned v) { return ckpt_f8_e4m3fnuz_to_f32((uint8_t)v); }
static float d_e5m2z(unsigned v) { return ckpt_f8_e5m2fnuz_to_f32((uint8_t)v); }
static unsigned e_f16(float f) { return ckpt_f32_to_f16(f); }
static unsigned e_bf16(float f) { return ckpt_f32_to_bf16(f); }
static unsigned e_e4m3(float f) { return ckpt_f32_to_f8_e4m3(f); }
static unsigned e_e5m2(float f) { return ckpt_f32_to_f8_e5m2(f); }
static unsigned e_e4m3z(float f) { return ckpt_f32_to_f8_e4m3fnuz(f); }
static unsigned e_e5m2z(float f) { return ckpt_f32_to_f8_e5m2fnuz(f); }

static const struct format formats[] = {
    {"F16", 5, 10, 15, 0x7c00, 0x7c00, 0, d_f16, e_f16},
    {"BF16", 8, 7, 127, 0x7f80, 0x7f80, 0, d_bf16, e_bf16},
    {"F8_E4M3", 4, 3, 7, 0x7f, 0x7e, 0, d_e4m3, e_e4m3},
    {"F8_E5M2", 5, 2, 15, 0x7c, 0x7c, 0, d_e5m2, e_e5m2},
    {"F8_E4M3FNUZ", 4, 3, 8, 0x80, -1, 1, d_e4m3z, e_e4m3z},
    {"F8_E5M2FNUZ", 5, 2, 16, 0x80, -1, 1, d_e5m2z, e_e5m2z},
};

#define N_FORMATS (sizeof formats / sizeof formats[0])

static double magnitude(const struct format *f, unsigned code)
{
    int exp = (int)(code >> f->man_bits), man = (int)(code & ((1u << f->man_bits) - 1));

    return exp ? ldexp(man + (1 << f->man_bits), exp - f->bias - f->man_bits)
               : ldexp(man, 1 - f->bias - f->man_bits);
}

TEST(decode_every_pattern)
{
    for (size_t k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        unsigned sign = 1u << (f->exp_bits + f->man_bits);

        for (unsigned v = 0; v < 2 * sign; v++) {
            unsigned code = v & (sign - 1);
            float got = f->decode(v);
            double want = magnitude(f, code);

            if (code < f->n_finite && !(f->fnuz && v == sign)) {
                if ((double)got != (v & sign ? -want : want) || !signbit(got) != !(v & sign))
                    fail_msg("%s %#x: %g, %g wanted", f->name, v, (double)got, want);
            } else if ((int)code == f->over) {
                assert_true(isinf(got) && !signbit(got) == !(v & sign));
            } else {
                assert_true(isnan(got));
                /* quiet, but for BF16, which is f32's upper half */
                assert_true(ckpt_f32_bits(got) & 0x400000u || f->encode == e_bf16);
            }
        }
    }
}

/* The code nearest to |f|, found by bisection over the table of all magnitudes. */
static unsigned nearest(const struct format *f, const double *table, float value, int *is_nan)
{
    unsigned lo = 0, hi = f->n_finite - 1;
    double v = fabs((double)value), up;

    *is_nan = 0;
    while (hi - lo > 1) {
        unsigned mid = (lo + hi) / 2;

        if (table[mid] <= v)
            lo = mid;
        else
            hi = mid;
    }
    if (v >= table[hi])
        lo = hi++;                      /* beyond the largest: up to what would come next */
    up = lo == f->n_finite - 1 ? 2 * table[lo] - table[lo - 1] : table[hi];
    if (v - table[lo] > up - v || (v - table[lo] == up - v && (lo & 1)))
        lo++;
    if (lo < f->n_finite)
        return lo;
    *is_nan = f->over < 0;
    return (unsigned)f->over;
}

static void check_encode(const struct format *f, const double *table, uint32_t bits)
{
    unsigned sign = 1u << (f->exp_bits + f->man_bits), got, want;
    float value = ckpt_f32_of_bits(bits);
    int is_nan;

    got = f->encode(value);
    if (isnan(value)) {
        assert_true(isnan(f->decode(got)));
        return;
    }
    want = nearest(f, table, value, &is_nan);
    if (is_nan) {
        if (!isnan(f->decode(got)))
            fail_msg("%s: %a gives %#x, NaN wanted", f->name, (double)value, got);
        return;
    }
    if (signbit(value) && !(f->fnuz && want == 0))
        want |= sign;
    if (got != want)
        fail_msg("%s: %a gives %#x, %#x wanted", f->name, (double)value, got, want);
}

TEST(encode_rounds_to_nearest_even)
{
    double *table = malloc(65536 * sizeof *table);
    uint32_t random = 7;

    for (size_t k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];

        for (unsigned i = 0; i < f->n_finite; i++)
            table[i] = magnitude(f, i);
        /* Around every value and every tie; then anywhere. */
        for (unsigned i = 0; i + 1 < f->n_finite; i++)
            for (int d = -2; d <= 2; d++) {
                uint32_t at = ckpt_f32_bits((float)table[i]);
                uint32_t tie = ckpt_f32_bits((float)((table[i] + table[i + 1]) / 2));

                check_encode(f, table, at + (uint32_t)d);
                check_encode(f, table, (tie + (uint32_t)d) | 0x80000000u);
            }
        for (int i = 0; i < 200000; i++) {
            random = random * 1664525u + 1013904223u;
            check_encode(f, table, random ^ random >> 13);
        }
        check_encode(f, table, 0x7f800000u);
        check_encode(f, table, 0xff800000u);
    }
    free(table);
}

TEST(round_trip_of_every_pattern)
{
    for (size_t k = 0; k < N_FORMATS; k++) {
        const struct format *f = &formats[k];
        unsigned n = 2u << (f->exp_bits + f->man_bits);

        for (unsigned v = 0; v < n; v++)
            if (!isnan(f->decode(v)))
                assert_int_equal(f->encode(f->decode(v)), v);
    }
}

/* The one NaN of BF16; F16 as the processor's instruction gives it. */
TEST(nan_bits)
{
    assert_int_equal(ckpt_f32_to_bf16(ckpt_f32_of_bits(0xff800001u)), 0x7fc0);
    assert_int_equal(ckpt_f32_to_f16(ckpt_f32_of_bits(0xffbfe000u)), 0xffff);
    assert_int_equal(ckpt_f32_to_f16(ckpt_f32_of_bits(0x7f802000u)), 0x7e01);
    assert_int_equal(ckpt_f32_to_f16(ckpt_f32_of_bits(0x7f800001u)), 0x7e00);
    assert_int_equal(ckpt_f32_bits(ckpt_f16_to_f32(0x7c01)), 0x7fc02000u);
    assert_int_equal(ckpt_f32_bits(ckpt_f16_to_f32(0xfe00)), 0xffc00000u);
    assert_int_equal(ckpt_f32_to_f8_e4m3(-NAN), 0xff);
    assert_int_equal(ckpt_f32_to_f8_e4m3(-INFINITY), 0xfe);
    assert_int_equal(ckpt_f32_to_f8_e5m2(NAN), 0x7f);
    assert_int_equal(ckpt_f32_to_f8_e4m3fnuz(-NAN), 0x80);
    assert_int_equal(ckpt_f32_to_f8_e5m2fnuz(INFINITY), 0x80);
}
