/* view_layout: pieces, rows and axes in another order, read by any range. */
#include "libckpt/views/layout.h"

#include "tests/unit/compare.h"
#include "tests/unit/store.h"

static const struct store_row below[] = {
    {"a", CKPT_I16, 2, {12, 5}, 0}, {"b", CKPT_I16, 2, {12, 5}, 0}, {"v", CKPT_I16, 1, {12}, 0},
    {"f", CKPT_F32, 2, {6, 4}, 0},
};

static struct ckpt_source *must_lay(const struct ckpt_layout *row, size_t n)
{
    struct ckpt_source *src = store_source(below, 4, NULL), *out;
    struct ckpt_err err = {0};

    if (ckpt_view_layout(&out, src, row, n, NULL, &err))
        fail_msg("%s", err.text);
    return out;
}

/* Every range of tensor 0 is that of the whole. */
static void check_ranges(struct ckpt_source *s)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(s, 0);
    size_t width = ckpt_dtype_size(t->dtype);
    unsigned char *all = read_whole(s, 0), part[1024];
    struct ckpt_err err = {0};

    for (int64_t at = 0; at < t->numel; at++)
        for (int64_t n = 1; n <= t->numel - at; n++) {
            assert_int_equal(ckpt_source_read(s, 0, at, n, part, &err), 0);
            assert_memory_equal(part, all + (size_t)at * width, (size_t)n * width);
        }
    free(all);
}

TEST(parts_lie_one_after_the_other)
{
    const struct ckpt_layout_part part[] = {{1, 10}, {0, 0}, {1, 50}};
    const struct ckpt_layout row = {.name = "x", .shape = {3, {3, 2, 5}}, .part = part,
                                    .n_part = 3, .stored = "Q"};
    struct ckpt_source *s = must_lay(&row, 1);
    uint16_t *x = read_whole(s, 0), *a = read_whole(s, 0);
    struct ckpt_source *src = store_source(below, 4, NULL);
    struct ckpt_extent e;

    free(a);
    a = read_whole(src, 0);
    assert_memory_equal(x + 10, a, 20);
    free(a);
    a = read_whole(src, 1);
    assert_memory_equal(x, a + 10, 20);
    assert_memory_equal(x + 20, a + 50, 20);
    assert_string_equal(ckpt_source_tensor(s, 0)->stored, "Q");
    assert_true(ckpt_source_locate(s, 0, 10, 10, &e));
    assert_int_equal(e.offset, 0);
    assert_true(ckpt_source_locate(s, 0, 22, 3, &e));
    assert_int_equal(e.offset, 120 + 104);
    assert_false(ckpt_source_locate(s, 0, 9, 2, &e));
    assert_non_null(ckpt_source_extra(s, "side"));
    check_ranges(s);
    free(a);
    free(x);
    ckpt_source_close(s);
    ckpt_source_close(src);
}

/* [o][a][b][c] seen as [o][b][a][c], against four plain loops. */
TEST(rows_change_places)
{
    static const struct { int64_t o, a, b, c; } f[] = {
        {2, 2, 3, 1}, {1, 4, 3, 1}, {1, 2, 3, 2}, {3, 2, 2, 1}, {1, 12, 1, 1}, {1, 1, 1, 12},
    };
    const struct ckpt_layout_part part = {1, 0};
    struct ckpt_source *src = store_source(below, 4, NULL);
    uint16_t *b = read_whole(src, 1);

    for (size_t k = 0; k < sizeof f / sizeof f[0]; k++) {
        struct ckpt_layout row = {.name = "x", .shape = {2, {12, 5}}, .part = &part, .n_part = 1,
                                  .order = CKPT_LAYOUT_ROWS, .a = f[k].a, .b = f[k].b,
                                  .c = f[k].c};
        struct ckpt_source *s = must_lay(&row, 1);
        uint16_t *x = read_whole(s, 0);
        size_t i = 0;

        for (int64_t o = 0; o < f[k].o; o++)
            for (int64_t bi = 0; bi < f[k].b; bi++)
                for (int64_t ai = 0; ai < f[k].a; ai++)
                    for (int64_t c = 0; c < f[k].c; c++, i++)
                        assert_memory_equal(x + 5 * i,
                                            b + 5 * (((o * f[k].a + ai) * f[k].b + bi) * f[k].c + c),
                                            10);
        check_ranges(s);
        free(x);
        ckpt_source_close(s);
    }
    free(b);
    ckpt_source_close(src);
}

TEST(a_matrix_is_transposed)
{
    const struct ckpt_layout_part part = {0, 0};
    const struct ckpt_layout row = {.name = "x", .shape = {2, {5, 12}}, .part = &part,
                                    .n_part = 1, .order = CKPT_LAYOUT_TRANSPOSED};
    struct ckpt_source *s = must_lay(&row, 1), *src = store_source(below, 4, NULL);
    uint16_t *x = read_whole(s, 0), *a = read_whole(src, 0);

    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 12; j++)
            assert_int_equal(x[i * 12 + j], a[j * 5 + i]);
    check_ranges(s);
    free(x);
    free(a);
    ckpt_source_close(s);
    ckpt_source_close(src);
}

TEST(values_can_be_made)
{
    const float value[] = {1, 2.5f, -3};
    const struct ckpt_layout row = {.name = "x", .shape = {1, {3}}, .value = value};
    struct ckpt_source *s = must_lay(&row, 1);
    float *x = read_whole(s, 0);

    assert_int_equal(ckpt_source_tensor(s, 0)->dtype, CKPT_F32);
    assert_memory_equal(x, value, sizeof value);
    check_ranges(s);
    free(x);
    ckpt_source_close(s);
}

TEST(rows_that_do_not_fit_are_refused)
{
    const struct ckpt_layout_part in = {0, 0}, out = {0, 1}, none = {9, 0};
    const struct ckpt_layout_part mixed[] = {{0, 0}, {3, 0}};
    const struct ckpt_layout row[] = {
        {.name = "past the end", .shape = {1, {60}}, .part = &out, .n_part = 1},
        {.name = "no tensor", .shape = {1, {60}}, .part = &none, .n_part = 1},
        {.name = "two dtypes", .shape = {1, {48}}, .part = mixed, .n_part = 2},
        {.name = "no even share", .shape = {1, {7}}, .part = mixed, .n_part = 2},
        {.name = "no matrix", .shape = {1, {60}}, .part = &in, .n_part = 1,
         .order = CKPT_LAYOUT_TRANSPOSED},
        {.name = "no factors", .shape = {2, {12, 5}}, .part = &in, .n_part = 1,
         .order = CKPT_LAYOUT_ROWS},
        {.name = "odd factors", .shape = {2, {12, 5}}, .part = &in, .n_part = 1,
         .order = CKPT_LAYOUT_ROWS, .a = 5, .b = 1, .c = 1},
        {.name = "no values", .shape = {1, {2}}},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        int closed = 0;
        struct ckpt_source *src = store_source(below, 4, &closed), *s;
        struct ckpt_err err = {0};

        if (ckpt_view_layout(&s, src, &row[i], 1, NULL, &err) != CKPT_ESTATE)
            fail_msg("%s: taken", row[i].name);
        assert_null(s);
        assert_int_equal(closed, 1);
    }
}
