/* baseline: the figures of a layer by its number, whatever else the file has. */
#include "tests/unit/unit.h"

#include "tools/eval/score/baseline.h"

static int read_text(double figure[3], const char *text, int64_t layer, struct ckpt_err *err)
{
    return baseline_read(figure, text, strlen(text), layer, err);
}

TEST_ERR(a_line_is_found_by_its_layer)
{
    static const char text[] = "LAYER,P,R,F\r\n0,0.5,0.25,0.125\r\n11,-0.5,1e-3,0 \n1,0.75,0.5,0.25";
    double f[3];

    assert_int_equal(read_text(f, text, 0, err), 0);
    assert_true(f[0] == 0.5 && f[1] == 0.25 && f[2] == 0.125);
    assert_int_equal(read_text(f, text, 11, err), 0);
    assert_true(f[0] == -0.5 && f[1] == 1e-3 && f[2] == 0);
    assert_int_equal(read_text(f, text, 1, err), 0);
    assert_true(f[0] == 0.75 && f[2] == 0.25);
    assert_int_equal(read_text(f, text, 2, err), CKPT_EFORMAT);
    assert_string_equal(err->text, "no line of layer 2");
}

TEST(what_is_no_line_is_none)
{
    static const char *const bad[] = {"", "\n\n", "2", "2,0.1", "2,0.1,0.2", "2,0.1,0.2,", "2,0.1,0.2,\n0.3",
                                      "2,0.1,0.2,0.3,0.4", "2 0.1 0.2 0.3", ",0.1,0.2,0.3", "x2,0.1,0.2,0.3",
                                      "2,0.1,0.2,0.3x", "18446744073709551618,0.1,0.2,0.3"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ckpt_err err = {0};
        double f[3];

        if (read_text(f, bad[i], 2, &err) != CKPT_EFORMAT)
            fail_msg("\"%s\" has a line", bad[i]);
    }
}

TEST(a_figure_beyond_cosines_is_refused)
{
    static const char *const bad[] = {"2,1,0,0", "2,0,-1,0", "2,0,0,nan", "2,inf,0,0", "2,0,1e300,0"};

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ckpt_err err = {0};
        double f[3];

        assert_int_equal(read_text(f, bad[i], 2, &err), CKPT_EFORMAT);
        assert_string_equal(err.text, "layer 2: a value is not in (-1, 1)");
    }
}
