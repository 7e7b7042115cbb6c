/* source - the checks in front of a format, and what happens when it leaves a call out. */
#include "tests/unit/store.h"

static const struct store_row rows[] = {
    {"a", CKPT_F32, 2, {4, 6}, 0},
    {"empty", CKPT_F32, 1, {0}, 0},
    {"nibbles", CKPT_F4, 1, {8}, 0},
};

TEST(facts)
{
    int closed = 0;
    struct ckpt_source *src = store_source(rows, 3, &closed);
    const struct ckpt_extra *extra;

    assert_string_equal(ckpt_source_format(src), "store");
    assert_int_equal(ckpt_source_count(src), 3);
    assert_int_equal(ckpt_source_find(src, "empty"), 1);
    assert_true(ckpt_source_find(src, "none") == SIZE_MAX);
    assert_null(ckpt_source_tensor(src, 3));
    assert_ptr_equal(ckpt_source_tensor(src, 2), &ckpt_source_tensors(src)->item[2]);
    assert_int_equal(ckpt_source_extras(src, &extra), 1);
    assert_ptr_equal(ckpt_source_extra(src, "side"), extra);
    assert_null(ckpt_source_extra(src, "sid"));
    assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(src), "step")), 7);
    ckpt_source_close(src);
    assert_int_equal(closed, 1);
    ckpt_source_close(NULL);
}

TEST_ERR(read_checks_its_range)
{
    static const struct {
        size_t  i;
        int64_t start, count;
        int     code;
    } cases[] = {
        {0, 0, 24, 0},           {0, 23, 1, 0},           {0, 24, 0, 0},
        {1, 0, 0, 0},            {0, 0, 25, CKPT_ESTATE}, {0, 24, 1, CKPT_ESTATE},
        {0, 25, 0, CKPT_ESTATE}, {0, -1, 1, CKPT_ESTATE}, {0, 1, -1, CKPT_ESTATE},
        {1, 0, 1, CKPT_ESTATE},  {3, 0, 0, CKPT_ESTATE},  {0, 2, INT64_MAX, CKPT_ESTATE},
        {2, 0, 8, CKPT_EUNSUPPORTED},
    };
    struct ckpt_source *src = store_source(rows, 3, NULL);
    unsigned char got[96];
    struct ckpt_extent at;

    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        assert_int_equal(ckpt_source_read(src, cases[k].i, cases[k].start, cases[k].count, got,
                                          err), cases[k].code);
        assert_int_equal(
            ckpt_source_locate(src, cases[k].i, cases[k].start, cases[k].count, &at),
            cases[k].code == 0 && cases[k].count > 0);
    }
    assert_int_equal(ckpt_source_read(src, 0, 3, 2, got, err), 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(got[i], 12 + i);
    assert_true(ckpt_source_locate(src, 0, 3, 2, &at));
    assert_int_equal(at.offset, 12);
    ckpt_source_close(src);
}

/* -- a source that computes: no fragments -------------------------------------------------- */

static int ones(void *self, size_t i, int64_t start, int64_t count, void *dst,
                struct ckpt_err *err)
{
    (void)i;
    (void)start;
    if (self)
        return ckpt_fail(err, CKPT_EIO, "no ones left");
    memset(dst, 1, (size_t)count);
    return 0;
}

static const struct ckpt_source_ops ones_ops = {.format = "ones", .read = ones};

TEST_ERR(own_read_and_no_locate)
{
    struct ckpt_shape shape = ckpt_shape_1d(3);
    struct ckpt_extent at;

    for (int fails = 0; fails < 2; fails++) {
        struct ckpt_tensors list = {0};
        struct ckpt_source *src;
        unsigned char got[3] = {0};

        assert_int_equal(ckpt_tensors_add(&list, NULL, "a", 1, CKPT_U8, &shape, NULL, 0, false,
                                          err), 0);
        assert_int_equal(ckpt_source_new(&src, &ones_ops, fails ? &fails : NULL, &list, NULL, 0,
                                         NULL, err), 0);
        assert_int_equal(list.n, 0);            /* the source took it */
        assert_true(json_is_object(ckpt_source_info(src)));
        assert_false(ckpt_source_locate(src, 0, 0, 3, &at));
        assert_int_equal(ckpt_source_read(src, 0, 0, 3, got, err), fails ? CKPT_EIO : 0);
        assert_int_equal(got[2], !fails);
        if (fails)
            assert_string_equal(err->text, "tensor a: no ones left");
        ckpt_source_close(src);
    }
}

static void count_close(void *self) { ++*(int *)self; }

TEST_ERR(new_takes_all_when_it_fails)
{
    static const struct ckpt_source_ops ops = {.format = "bad", .close = count_close};
    struct ckpt_shape shape = ckpt_shape_1d(3);
    struct ckpt_tensors list = {0};
    struct ckpt_source *src;
    int closed = 0;

    assert_int_equal(
        ckpt_tensors_add(&list, NULL, "a", 1, CKPT_U8, &shape, NULL, 0, false, err), 0);
    list.item[0].alias_of = 1;
    assert_int_equal(ckpt_source_new(&src, &ops, &closed, &list, NULL, 0, json_object(), err),
                     CKPT_ESTATE);
    assert_null(src);
    assert_int_equal(closed, 1);
    assert_int_equal(list.n, 0);
}
