/* bnb_optim: the table of bitsandbytes, the nearest of it, a file that is read back. */
#include "trainer/rng.h"
#include "tests/unit/compare.h"

#include <math.h>
#include <sys/stat.h>

#include "formats/bnb/bnb.h"
#include "formats/bnb/optim.h"

#define TMP "build/test-bnb-optimizer.pt"

TEST(opened_codes_are_packed_without_loss)
{
    static float x[64 * BNB_BLOCK], y[64 * BNB_BLOCK], scale[64];
    static uint8_t code[64 * BNB_BLOCK];
    enum { N = 64 * BNB_BLOCK - 100 };
    static struct bnb_codec c;

    for (int sign = 0; sign < 2; sign++) {
        bnb_codec_init(&c, sign);
        rng_normal(x, 0, N, 7.0f, 3, 0);
        for (int i = 0; i < N; i++)
            x[i] = i < 3 * BNB_BLOCK && i % BNB_BLOCK ? 0 : sign ? x[i] : fabsf(x[i]);
        bnb_pack(code, scale, x, N, &c);
        for (int i = 0; i < N; i++)
            x[i] = c.map[code[i]] * scale[i / BNB_BLOCK];
        bnb_pack(code, scale, x, N, &c);
        for (int i = 0; i < N; i++)
            y[i] = c.map[code[i]] * scale[i / BNB_BLOCK];
        assert_memory_equal(y, x, N * sizeof *x);
    }
}

TEST(tables_are_those_in_a_file_of_bitsandbytes)
{
    struct ckpt_source *s = must_open("tests/golden/bnb/AdamW8bit.pt", NULL);
    static const char *const names[] = {"state.0.__bnb_optimizer_quant_state__.qmap1",
                                        "state.0.__bnb_optimizer_quant_state__.qmap2"};
    float map[256];

    for (int k = 0; k < 2; k++) {
        float *theirs = read_whole(s, ckpt_source_find(s, names[k]));

        bnb_map(map, k == 0);
        for (int i = 0; i < 256; i++)       /* torch's last bits differ between its versions */
            if (fabsf(map[i] - theirs[i]) > 1e-6f * fabsf(theirs[i]))
                fail_msg("table %d, entry %d: %g, %g wanted", k, i, map[i], theirs[i]);
        assert_true(map[k ? 0 : 127] == 0 && map[255] == 1);
        free(theirs);
    }
    ckpt_source_close(s);
}

/* Numbers of many sizes, the same in every run. */
static float number(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return ldexpf((float)(int32_t)*seed / 2147483648.0f, (int)(*seed >> 3 & 31) - 28);
}

TEST(codes_are_the_nearest_of_their_sign)
{
    static float x[5000], scale[20];
    static uint8_t code[5000];
    static struct bnb_codec c;
    const float *map = c.map;
    uint32_t seed = 1;

    for (int with_sign = 0; with_sign < 2; with_sign++) {
        bnb_codec_init(&c, with_sign);
        for (int i = 0; i < 5000; i++)
            x[i] = with_sign ? number(&seed) : fabsf(number(&seed));
        memset(x + 512, 0, 256 * sizeof *x);
        bnb_pack(code, scale, x, 5000, &c);
        for (int i = 0; i < 5000; i++) {
            float y = scale[i / 256] > 0 ? x[i] / scale[i / 256] : 0, best = 2;

            for (int k = 0; k < 256; k++)
                if (!with_sign || x[i] == 0 || (x[i] < 0) == (map[k] < 0))
                    best = fabsf(map[k] - y) < best ? fabsf(map[k] - y) : best;
            if (fabsf(map[code[i]] - y) > best)
                fail_msg("%g as %g", y, map[code[i]]);
            assert_false(with_sign && x[i] != 0 && (x[i] < 0) != (map[code[i]] < 0));
        }
        assert_true(scale[2] == 0 && map[code[600]] == 0);
    }
}

/* On both sides of each border and on it, where the cells must lead to the right pair. */
TEST(codes_change_at_the_borders)
{
    static struct bnb_codec c;

    for (int with_sign = 0; with_sign < 2; with_sign++) {
        bnb_codec_init(&c, with_sign);
        for (int i = 0; i < 255; i++) {
            float at = (c.map[i] + c.map[i + 1]) / 2;

            assert_int_equal(bnb_code(&c, nextafterf(at, -2)), i);
            assert_int_equal(bnb_code(&c, nextafterf(at, 2)), with_sign && i == 126 ? i : i + 1);
            assert_int_equal(bnb_code(&c, at), with_sign && i == 126 ? i : i + 1);
        }
        for (int i = 0; i < 256; i++)
            assert_int_equal(bnb_code(&c, c.map[i]), i);
        assert_int_equal(bnb_code(&c, 1.5f), 255);
        if (with_sign)
            assert_int_equal(bnb_code(&c, -1.5f), 0);
        assert_int_equal(bnb_code(&c, 1e-30f), c.zero);
        assert_int_equal(bnb_code(&c, -0.0f), c.zero);
    }
}

TEST(a_file_comes_back_as_it_was_packed)
{
    static float avg[4200], sq[4200], small[2][7], scale[17];
    static uint8_t code[4200];
    static struct bnb_codec c;
    const struct adamw_param param[] = {
        {{2, {60, 70}}, 0, avg, sq, ADAMW_8BIT}, {{1, {7}}, 1, small[0], small[1], ADAMW_F32},
    };
    const struct adamw_group group[] = {{.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999,
                                          .eps = 1e-8, .weight_decay = 0.01},
                                        {.lr = 1e-3, .initial_lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999,
                                         .eps = 1e-8}};
    struct ckpt_source *s, *seen;
    struct ckpt_out *out;
    struct ckpt_err err = {0};
    uint32_t seed = 7;
    float *x;

    for (int i = 0; i < 4200; i++) {
        avg[i] = number(&seed);
        sq[i] = fabsf(number(&seed));
    }
    for (int i = 0; i < 7; i++)
        small[0][i] = small[1][i] = (float)i;
    mkdir("build", 0777);
    assert_int_equal(ckpt_out_create(&out, TMP, CKPT_REPLACE, &err), 0);
    if (bnb_optimizer_file_write(out, param, 2, group, 2, 2, 11, NULL, &err))
        fail_msg("%s", err.text);
    s = must_open(TMP, NULL);
    assert_int_equal(bnb_view(&seen, s, &err), 0);
    assert_int_equal(ckpt_source_count(seen), 4);
    for (int k = 0; k < 2; k++) {
        x = read_whole(seen, ckpt_source_find(seen, k ? "state.0.exp_avg_sq" : "state.0.exp_avg"));
        bnb_codec_init(&c, k == 0);
        bnb_pack(code, scale, k ? sq : avg, 4200, &c);
        for (int i = 0; i < 4200; i++)
            assert_true(x[i] == c.map[code[i]] * scale[i / 256]);
        free(x);
    }
    x = read_whole(seen, ckpt_source_find(seen, "state.1.exp_avg"));
    assert_memory_equal(x, small[0], sizeof small[0]);
    free(x);
    ckpt_source_close(seen);
    remove(TMP);
}
