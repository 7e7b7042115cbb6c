/* convert - against torch's digests, the plain loops, and the rules where torch has none. */
#include "tests/unit/unit.h"

#include <math.h>

#include "libckpt/convert.h"
#include "libckpt/digest.h"
#include "libckpt/base/half.h"

#define N_BITS 393216           /* 65,536 upper halves, six lower ones each */

/* The inputs of tests/golden/make_half.py. */
struct inputs {
    uint32_t f32[N_BITS];
    double   f64[N_BITS];
    uint16_t halves[65536];
    uint8_t  bytes[256];
    int64_t  i64[65536];
    unsigned char out[N_BITS * 8];
};

static struct inputs inputs;

BEFORE_ALL()
{
    static const uint32_t low[6] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    struct inputs *in = &inputs;

    for (uint32_t i = 0; i < 65536; i++) {
        for (uint32_t k = 0; k < 6; k++)
            in->f32[i * 6 + k] = i << 16 | low[k];
        in->halves[i] = (uint16_t)i;
        in->i64[i] = (int64_t)(i * 0x9e3779b97f4a7c15u) >> (i % 64);
    }
    for (uint32_t i = 0; i < N_BITS; i++)
        in->f64[i] = (double)ckpt_f32_of_bits(in->f32[i]) * (1 + 0x1p-40);
    for (int i = 0; i < 256; i++)
        in->bytes[i] = (uint8_t)i;
}

/* One pattern for every NaN, as the maker of the digests does. */
static void one_nan(unsigned char *p, enum ckpt_dtype t, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = (uint16_t)(p[2 * i] | p[2 * i + 1] << 8);
        uint32_t u;

        if (t == CKPT_F32) {
            memcpy(&u, p + 4 * i, 4);
            u = isnan(ckpt_f32_of_bits(u)) ? 0x7fc00000u : u;
            memcpy(p + 4 * i, &u, 4);
        } else if (t == CKPT_F16 || t == CKPT_BF16) {
            if (isnan(t == CKPT_F16 ? ckpt_f16_to_f32(h) : ckpt_bf16_to_f32(h)))
                h = t == CKPT_F16 ? 0x7e00 : 0x7fc0;
            memcpy(p + 2 * i, &h, 2);
        } else {
            return;
        }
    }
}

static const void *input(const struct inputs *in, enum ckpt_dtype t, size_t *n)
{
    *n = t == CKPT_F32 || t == CKPT_F64 ? N_BITS : ckpt_dtype_size(t) == 1 ? 256 : 65536;
    return t == CKPT_F32   ? (const void *)in->f32
           : t == CKPT_F64 ? (const void *)in->f64
           : ckpt_dtype_size(t) == 8 ? (const void *)in->i64
           : ckpt_dtype_size(t) == 1 ? (const void *)in->bytes : (const void *)in->halves;
}

TEST_ERR(same_bits_as_torch)
{
    struct inputs *in = &inputs;
    FILE *f = fopen("tests/golden/half.txt", "r");
    char from_name[32], to_name[32], want[CKPT_SHA256_HEX], got[CKPT_SHA256_HEX];
    struct ckpt_sha256 *sha;
    int lines = 0;

    assert_non_null(f);
    assert_int_equal(ckpt_sha256_new(&sha, err), 0);
    for (; fscanf(f, "%31[^-]-%31s %64s ", from_name, to_name, want) == 3; lines++) {
        enum ckpt_dtype from = ckpt_dtype_parse(from_name), to = ckpt_dtype_parse(to_name);
        unsigned char digest[CKPT_SHA256_BYTES];
        const void *src;
        size_t n;

        assert_true(ckpt_convert_can(to, from));
        src = input(in, from, &n);
        ckpt_convert(in->out, to, src, from, n);
        one_nan(in->out, to, n);
        assert_int_equal(ckpt_sha256_add(sha, in->out, n * ckpt_dtype_size(to), err), 0);
        assert_int_equal(ckpt_sha256_end(sha, digest, err), 0);
        ckpt_digest_hex(got, digest, sizeof digest);
        if (strcmp(got, want) != 0)
            fail_msg("%s to %s differs from torch", from_name, to_name);
    }
    assert_int_equal(lines, 25);
    ckpt_sha256_free(sha);
    fclose(f);
}

/* Every length and alignment around a vector, NaN bits included, against one at a time. */
TEST(vector_code_equals_the_plain_functions)
{
    struct inputs *in = &inputs;
    unsigned char *src = malloc(N_BITS * 4 + 8);

    for (size_t shift = 0; shift < 3; shift++) {
        memcpy(src + shift, in->f32, N_BITS * 4);
        for (size_t n = N_BITS - 17; n <= N_BITS; n++) {
            ckpt_convert(in->out + shift, CKPT_F16, src + shift, CKPT_F32, n);
            ckpt_convert(in->out + N_BITS * 4 + shift, CKPT_BF16, src + shift, CKPT_F32, n);
            for (size_t i = n < N_BITS ? n - 40 : 0; i < n; i++) {
                float f = ckpt_f32_of_bits(in->f32[i]);
                uint16_t h, b;

                memcpy(&h, in->out + shift + 2 * i, 2);
                memcpy(&b, in->out + N_BITS * 4 + shift + 2 * i, 2);
                if (h != ckpt_f32_to_f16(f) || b != ckpt_f32_to_bf16(f))
                    fail_msg("%#x: %#x and %#x, %#x and %#x wanted", in->f32[i], h, b,
                             ckpt_f32_to_f16(f), ckpt_f32_to_bf16(f));
            }
        }
        memcpy(src + shift, in->halves, 65536 * 2);
        for (size_t n = 65519; n <= 65536; n++) {
            ckpt_convert(in->out + shift, CKPT_F32, src + shift, CKPT_F16, n);
            ckpt_convert(in->out + N_BITS * 4 + shift, CKPT_F32, src + shift, CKPT_BF16, n);
            for (size_t i = n < 65536 ? n - 40 : 0; i < n; i++) {
                uint32_t h, b;

                memcpy(&h, in->out + shift + 4 * i, 4);
                memcpy(&b, in->out + N_BITS * 4 + shift + 4 * i, 4);
                assert_int_equal(h, ckpt_f32_bits(ckpt_f16_to_f32((uint16_t)i)));
                assert_int_equal(b, ckpt_f32_bits(ckpt_bf16_to_f32((uint16_t)i)));
            }
        }
    }
    free(src);
}

/* Many 8-bit floats are looked up in a table, few are not. */
TEST(many_bytes_equal_one_at_a_time)
{
    static const enum ckpt_dtype types[] = {CKPT_F8_E4M3, CKPT_F8_E5M2, CKPT_F8_E4M3FNUZ,
                                            CKPT_F8_E5M2FNUZ, CKPT_I8, CKPT_U8, CKPT_BOOL};
    struct inputs *in = &inputs;
    float *got = (float *)(void *)in->out, want;
    unsigned char bytes[3001];

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
        ckpt_convert(got, CKPT_F32, bytes, types[k], sizeof bytes);
        for (size_t i = 0; i < sizeof bytes; i++) {
            ckpt_convert(&want, CKPT_F32, &bytes[i], types[k], 1);
            assert_memory_equal(&got[i], &want, sizeof want);
        }
    }
}

static int64_t one_int(double v, enum ckpt_dtype to)
{
    uint64_t out = 0;

    ckpt_convert(&out, to, &v, CKPT_F64, 1);
    switch (to) {
    case CKPT_I8: return (int8_t)out;
    case CKPT_I16: return (int16_t)out;
    case CKPT_I32: return (int32_t)out;
    default: return (int64_t)out;
    }
}

TEST(float_to_int_truncates_and_clamps)
{
    static const struct {
        enum ckpt_dtype t;
        int64_t         low, high;
    } r[] = {{CKPT_U8, 0, 255}, {CKPT_I8, -128, 127}, {CKPT_U16, 0, 65535},
             {CKPT_I16, -32768, 32767}, {CKPT_U32, 0, UINT32_MAX},
             {CKPT_I32, INT32_MIN, INT32_MAX}, {CKPT_I64, INT64_MIN, INT64_MAX}};
    float f = 2.75f;
    int16_t i;

    for (size_t k = 0; k < sizeof r / sizeof r[0]; k++) {
        assert_int_equal(one_int(NAN, r[k].t), 0);
        assert_int_equal(one_int(3.999, r[k].t), 3);
        assert_int_equal(one_int(-0.999, r[k].t), 0);
        assert_int_equal(one_int(INFINITY, r[k].t), r[k].high);
        assert_int_equal(one_int(-INFINITY, r[k].t), r[k].low);
        assert_int_equal(one_int(1e30, r[k].t), r[k].high);
        assert_int_equal(one_int(-1e30, r[k].t), r[k].low);
        if (r[k].low < 0)
            assert_int_equal(one_int(-3.999, r[k].t), -3);
        if (r[k].t != CKPT_I64) {
            assert_int_equal(one_int((double)r[k].high + 0.5, r[k].t), r[k].high);
            assert_int_equal(one_int((double)r[k].high - 0.5, r[k].t), r[k].high - 1);
        }
    }
    assert_true((uint64_t)one_int(1e30, CKPT_U64) == UINT64_MAX);
    assert_true((uint64_t)one_int(0x1p63, CKPT_U64) == (uint64_t)1 << 63);
    assert_int_equal(one_int(-1, CKPT_U64), 0);
    assert_int_equal(one_int(0x1p63, CKPT_I64), INT64_MAX);
    assert_int_equal(one_int(NAN, CKPT_BOOL), 1);
    assert_int_equal(one_int(-0.0, CKPT_BOOL), 0);
    assert_int_equal(one_int(0x1p-1000, CKPT_BOOL), 1);
    ckpt_convert(&i, CKPT_I16, &f, CKPT_F32, 1);
    assert_int_equal(i, 2);
}

TEST(bool_is_zero_or_one)
{
    const uint8_t in[4] = {0, 1, 2, 255};
    const float want[4] = {0, 1, 1, 1};
    const uint16_t bf16[4] = {0, 0x3f80, 0x3f80, 0x3f80};
    uint16_t half[4];
    float got[4];

    ckpt_convert(got, CKPT_F32, in, CKPT_BOOL, 4);
    assert_memory_equal(got, want, sizeof want);
    ckpt_convert(half, CKPT_BF16, in, CKPT_BOOL, 4);
    assert_memory_equal(half, bf16, sizeof bf16);
}

/* Every pair: what can be converted is, inside its bounds; also in place where widths agree. */
TEST(all_pairs_stay_in_bounds)
{
    struct inputs *in = &inputs;
    int pairs = 0;

    for (int from = 1; from < CKPT_DTYPE_COUNT; from++)
        for (int to = 1; to < CKPT_DTYPE_COUNT; to++) {
            size_t n = 1037, width = ckpt_dtype_size((enum ckpt_dtype)to);
            unsigned char *src = (unsigned char *)in->f32, place[1037 * 8];

            if (!ckpt_convert_can((enum ckpt_dtype)to, (enum ckpt_dtype)from))
                continue;
            pairs++;
            memset(in->out, 0xa5, n * 16 + 32);
            ckpt_convert(in->out, (enum ckpt_dtype)to, src, (enum ckpt_dtype)from, n);
            for (size_t i = 0; i < 16; i++)
                assert_int_equal(in->out[n * width + i], 0xa5);
            if (width != ckpt_dtype_size((enum ckpt_dtype)from) || width > 8)
                continue;
            memcpy(place, src, n * width);
            ckpt_convert(place, (enum ckpt_dtype)to, place, (enum ckpt_dtype)from, n);
            assert_memory_equal(place, in->out, n * width);
        }
    assert_int_equal(pairs, 17 * 17 + 7);       /* complex, E8M0 and quantised to themselves */
    assert_false(ckpt_convert_can(CKPT_C64, CKPT_F32));
    assert_false(ckpt_convert_can(CKPT_F32, CKPT_C64));
    assert_false(ckpt_convert_can(CKPT_F4, CKPT_F4));
    assert_false(ckpt_convert_can(CKPT_QI8, CKPT_I8));
    assert_false(ckpt_convert_can(CKPT_DTYPE_NONE, CKPT_F32));
}
