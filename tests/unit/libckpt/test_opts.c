/* opts - option structs of an older and of a newer version, and none at all. */
#include "tests/unit/unit.h"

#include "libckpt/base/opts.h"

struct now {
    size_t size;
    long   a, b;
};

struct later {
    struct now now;
    long       c;
};

TEST_ERR(a_zeroed_struct_and_none_are_the_defaults)
{
    struct now got = {.a = 5}, zeroed = {0};

    assert_int_equal(ckpt_opts_read(&got, sizeof got, NULL, err), 0);
    assert_int_equal(got.a, 0);
    got.b = 5;
    assert_int_equal(ckpt_opts_read(&got, sizeof got, &zeroed, err), 0);
    assert_int_equal(got.b, 0);
}

TEST_ERR(size_0_stands_for_all_fields)
{
    struct now got, in = {.a = 1, .b = 2};

    assert_int_equal(ckpt_opts_read(&got, sizeof got, &in, err), 0);
    assert_int_equal(got.a, 1);
    assert_int_equal(got.b, 2);
    assert_int_equal(got.size, sizeof got);
}

TEST_ERR(a_shorter_struct_leaves_the_rest_zero)
{
    struct now in = {.size = sizeof in, .a = 1, .b = 2};
    struct later got;

    assert_int_equal(ckpt_opts_read(&got, sizeof got, &in, err), 0);
    assert_int_equal(got.now.b, 2);
    assert_int_equal(got.c, 0);
}

TEST_ERR(a_longer_struct_may_set_known_fields_only)
{
    struct later in = {.now = {.size = sizeof in, .a = 1}};
    struct now got;

    assert_int_equal(ckpt_opts_read(&got, sizeof got, &in, err), 0);
    assert_int_equal(got.a, 1);
    in.c = 1;
    assert_int_equal(ckpt_opts_read(&got, sizeof got, &in, err), CKPT_EUNSUPPORTED);
}

TEST_ERR(a_size_that_is_none_is_refused)
{
    struct now got, in = {.size = 3};

    assert_int_equal(ckpt_opts_read(&got, sizeof got, &in, err), CKPT_EUSAGE);
}
