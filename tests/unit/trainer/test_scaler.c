/* The loss's scale: DeepSpeed's moves, its end, and scaler.pt there and back. */
#include "tests/unit/unit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "trainer/optim/scaler.h"

#define TMP "build/test-scaler.pt"

static const struct scaler_opts usual = {.on = true, .initial_scale_power = 16,
                                         .loss_scale_window = 1000, .hysteresis = 2,
                                         .min_loss_scale = 1};

/* What DeepSpeed 0.19's DynamicLossScaler(2 ** 6, scale_window=3, min_scale=1, delayed_shift=2) has
 * as cur_scale and cur_hysteresis after each update_scale(bit). */
TEST(moves_are_deepspeeds)
{
    static const char overflow[] = "0000010001100000000011111000000000010100000000000000000";
    static const int want[][2] = {
        {64, 2}, {64, 2}, {64, 2}, {128, 2}, {128, 2}, {128, 1}, {128, 1}, {128, 1}, {128, 1},
        {64, 1}, {32, 1}, {32, 1}, {32, 1}, {32, 1}, {64, 2}, {64, 2}, {64, 2}, {128, 2}, {128, 2},
        {128, 2}, {128, 1}, {64, 1}, {32, 1}, {16, 1}, {8, 1}, {8, 1}, {8, 1}, {8, 1}, {16, 2},
        {16, 2}, {16, 2}, {32, 2}, {32, 2}, {32, 2}, {64, 2}, {64, 1}, {64, 1}, {32, 1}, {32, 1},
        {32, 1}, {32, 1}, {64, 2}, {64, 2}, {64, 2}, {128, 2}, {128, 2}, {128, 2}, {256, 2},
        {256, 2}, {256, 2}, {512, 2}, {512, 2}, {512, 2}, {1024, 2}, {1024, 2}};
    struct scaler_opts o = usual;
    struct ckpt_err err = {0};
    struct scaler s;
    int64_t skipped = 0;

    o.initial_scale_power = 6;
    o.loss_scale_window = 3;
    scaler_init(&s, &o);
    assert_true(s.scale == 64);
    for (size_t i = 0; overflow[i]; i++) {
        assert_int_equal(scaler_update(&s, overflow[i] == '1', &err), 0);
        if (s.scale != want[i][0] || s.patience != want[i][1])
            fail_msg("update %zu: %g and %lld, %d and %d wanted", i, s.scale,
                     (long long)s.patience, want[i][0], want[i][1]);
        skipped += overflow[i] == '1';
    }
    assert_int_equal(s.skipped, skipped);
}

TEST(the_end_is_told)
{
    struct scaler_opts o = usual;
    struct ckpt_err err = {0};
    struct scaler s;

    o.initial_scale_power = 2;
    scaler_init(&s, &o);
    for (int i = 0; i < 3; i++)         /* patience, then 4 to 2 to 1 */
        assert_int_equal(scaler_update(&s, true, &err), 0);
    assert_true(s.scale == 1);
    assert_int_equal(scaler_update(&s, true, &err), CKPT_ENO);
    assert_string_equal(err.reason, "loss-scale");

    ckpt_err_clear(&err);
    o.loss_scale = 1024;                /* static: it stands */
    o.loss_scale_window = 2;
    scaler_init(&s, &o);
    assert_true(s.scale == 1024);
    for (int i = 0; i < 9; i++)
        assert_int_equal(scaler_update(&s, false, &err), 0);
    assert_true(s.scale == 1024);
    assert_int_equal(scaler_update(&s, true, &err), 0);
    assert_int_equal(scaler_update(&s, true, &err), CKPT_ENO);

    ckpt_err_clear(&err);
    o.on = false;
    scaler_init(&s, &o);
    assert_true(s.scale == 1);
}

static struct scaler stored(const struct scaler *s, const struct scaler_opts *o)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct ckpt_out *out;
    struct scaler n;

    mkdir("build", 0777);
    assert_int_equal(ckpt_out_create(&out, TMP, CKPT_REPLACE, &err), 0);
    assert_int_equal(scaler_file_write(out, s, &err), 0);
    scaler_init(&n, o);
    assert_int_equal(ckpt_file_open(&f, TMP, 0, &err), 0);
    if (scaler_file_read(&n, f, &err))
        fail_msg("%s", err.text);
    unlink(TMP);
    return n;
}

/* Gone on from a file the scale moves as it would have. */
TEST(a_file_brings_all_back)
{
    struct scaler_opts o = usual;
    struct ckpt_err err = {0};
    struct scaler s, n;

    o.loss_scale_window = 5;
    scaler_init(&s, &o);
    for (int i = 0; i < 60; i++) {
        bool overflow = i % 17 == 3 || i % 17 == 4 || i % 17 == 5;

        n = stored(&s, &o);
        assert_true(n.scale == s.scale && n.iter == s.iter && n.patience == s.patience &&
                    n.last_overflow == s.last_overflow && n.skipped == s.skipped);
        assert_int_equal(scaler_update(&n, overflow, &err), 0);
        assert_int_equal(scaler_update(&s, overflow, &err), 0);
        assert_true(n.scale == s.scale);
    }
    o.on = false;                       /* without scaling its count of skipped steps holds */
    n = stored(&s, &o);
    assert_true(n.scale == 1 && n.skipped == s.skipped);
    o.on = true;
    o.loss_scale = 512;
    n = stored(&s, &o);
    assert_true(n.scale == 512);
}

/* A file that torch wrote: GradScaler's five numbers alone. */
TEST(torchs_file_is_read)
{
    struct ckpt_err err = {0};
    struct ckpt_file *f;
    struct scaler n;

    scaler_init(&n, &usual);
    assert_int_equal(ckpt_file_open(&f, "tests/golden/optim/scaler.pt", 0, &err), 0);
    if (scaler_file_read(&n, f, &err))
        fail_msg("%s", err.text);
    assert_true(n.scale == 4096 && n.iter == 7 && n.last_overflow == -1 && n.patience == 2);
    assert_int_equal(n.skipped, 0);
    assert_int_equal(ckpt_file_open(&f, "tests/golden/torch/optimizer.pt", 0, &err), 0);
    assert_int_equal(scaler_file_read(&n, f, &err), CKPT_EFORMAT);
}
