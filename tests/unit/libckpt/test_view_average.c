/* view_average - the weighted mean of checkpoints, element by element. */
#include "tests/unit/store.h"

#include <math.h>

#include "libckpt/convert.h"
#include "libckpt/view.h"

/* The same tensors at another place, so that the counted bytes differ. */
static const struct store_row first[] = {
    {"w", CKPT_BF16, 2, {70, 501}, 0}, {"v", CKPT_F32, 1, {9000}, 0}, {"e", CKPT_F32, 1, {0}, 0},
};
static const struct store_row second[] = {
    {"v", CKPT_F32, 1, {9000}, 0}, {"e", CKPT_F32, 1, {0}, 0}, {"w", CKPT_F32, 2, {70, 501}, 0},
};

static double *all_of(struct ckpt_source *s, const char *name, size_t *n)
{
    size_t i = ckpt_source_find(s, name);
    const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
    double *x = malloc((size_t)t->numel * sizeof *x + 1);
    void *raw = store_whole(s, i);

    ckpt_convert(x, CKPT_F64, raw, t->dtype, (size_t)t->numel);
    free(raw);
    *n = (size_t)t->numel;
    return x;
}

TEST_ERR(weighted)
{
    static const double weight[] = {3, 1};
    static const char *const names[] = {"w", "v", "e"};
    int closed = 0;

    struct ckpt_source *a = store_source(first, 3, NULL), *b = store_source(second, 3, NULL), *m;
    struct ckpt_source *two[] = {store_source(first, 3, &closed), store_source(second, 3, &closed)};

    assert_int_equal(ckpt_view_average(&m, two, 2, weight, err), 0);
    assert_int_equal(ckpt_source_count(m), 3);
    for (size_t k = 0; k < 3; k++) {
        size_t n, i = ckpt_source_find(m, names[k]);
        double *x = all_of(a, names[k], &n), *y = all_of(b, names[k], &n),
               *z = all_of(m, names[k], &n);
        enum ckpt_dtype dtype = ckpt_source_tensor(m, i)->dtype;

        assert_int_equal(dtype, ckpt_source_tensor(a, ckpt_source_find(a, names[k]))->dtype);
        for (size_t e = 0; e < n; e++) {
            double sum = 0.75 * x[e] + 0.25 * y[e], want;
            unsigned char bits[4];

            ckpt_convert(bits, dtype, &sum, CKPT_F64, 1);
            ckpt_convert(&want, CKPT_F64, bits, dtype, 1);
            if (!(z[e] == want || (isnan(z[e]) && isnan(want))))
                fail_msg("%s[%zu] is %g, not %g", names[k], e, z[e], want);
        }
        free(x);
        free(y);
        free(z);
    }
    assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(m), "step")), 7);
    ckpt_source_close(m);
    assert_int_equal(closed, 2);
    ckpt_source_close(a);
    ckpt_source_close(b);
}

/* A range that begins and ends inside blocks is the same elements. */
TEST_ERR(ranges)
{
    struct ckpt_source *two[] = {store_source(first, 3, NULL), store_source(second, 3, NULL)}, *m;
    unsigned char whole[35070 * 2], part[20000 * 2 + 1];

    assert_int_equal(ckpt_view_average(&m, two, 2, NULL, err), 0);
    assert_int_equal(ckpt_source_read(m, 0, 0, 35070, whole, err), 0);
    part[40000] = 0xa5;
    assert_int_equal(ckpt_source_read(m, 0, 4095, 20000, part, err), 0);
    assert_memory_equal(part, whole + 4095 * 2, 40000);
    assert_int_equal(part[40000], 0xa5);
    ckpt_source_close(m);
}

/* Whole numbers must agree: those of two equal stores do, of two that begin elsewhere do not. */
TEST_ERR(integers)
{
    static const struct store_row same[] = {{"n", CKPT_I64, 1, {600}, 0}};
    static const struct store_row moved[] = {{"_", CKPT_U8, 1, {1}, 0}, {"n", CKPT_I64, 1, {600}, 0}};
    static const struct store_row both[] = {{"n", CKPT_I64, 1, {600}, 0}, {"_", CKPT_U8, 1, {1}, 0}};
    struct ckpt_source *alike[] = {store_source(same, 1, NULL), store_source(same, 1, NULL)}, *m;
    struct ckpt_source *other[] = {store_source(both, 2, NULL), store_source(moved, 2, NULL)};
    int64_t x[600];

    assert_int_equal(ckpt_view_average(&m, alike, 2, NULL, err), 0);
    assert_int_equal(ckpt_source_read(m, 0, 0, 600, x, err), 0);
    assert_int_equal(x[0], 0x0706050403020100);
    ckpt_source_close(m);
    assert_int_equal(ckpt_view_average(&m, other, 2, NULL, err), 0);
    assert_int_equal(ckpt_source_read(m, 0, 0, 600, x, err), CKPT_EMISMATCH);
    assert_non_null(strstr(err->text, "tensor n"));
    ckpt_source_close(m);
}

static void refused(const struct store_row *row, size_t n, const char *text)
{
    struct ckpt_err err = {0};
    int closed = 0;
    struct ckpt_source *two[] = {store_source(first, 3, &closed), store_source(row, n, &closed)}, *m;

    assert_int_equal(ckpt_view_average(&m, two, 2, NULL, &err), CKPT_EMISMATCH);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
    assert_null(m);
    assert_int_equal(closed, 2);
}

TEST(refused)
{
    static const struct store_row less[] = {{"w", CKPT_BF16, 2, {70, 501}, 0},
                                            {"e", CKPT_F32, 1, {0}, 0}};
    static const struct store_row shape[] = {{"w", CKPT_BF16, 2, {501, 70}, 0},
                                             {"v", CKPT_F32, 1, {9000}, 0},
                                             {"e", CKPT_F32, 1, {0}, 0}};
    static const struct store_row dtype[] = {{"w", CKPT_I16, 2, {70, 501}, 0},
                                             {"v", CKPT_F32, 1, {9000}, 0},
                                             {"e", CKPT_F32, 1, {0}, 0}};
    static const struct store_row more[] = {{"w", CKPT_BF16, 2, {70, 501}, 0},
                                            {"v", CKPT_F32, 1, {9000}, 0},
                                            {"e", CKPT_F32, 1, {0}, 0},
                                            {"x", CKPT_F32, 1, {2}, 0}};

    refused(less, 2, "tensor v: checkpoint 2 of the mean has none");
    refused(shape, 3, "shape [501, 70], the first [70, 501]");
    refused(dtype, 3, "checkpoint 2 of the mean has I16, the first BF16");
    refused(more, 4, "tensor x: only checkpoint 2");
}

TEST_ERR(weights_without_a_sum)
{
    static const double weight[] = {1, -1};
    struct ckpt_source *two[] = {store_source(first, 3, NULL), store_source(first, 3, NULL)}, *m;

    assert_int_equal(ckpt_view_average(&m, two, 2, weight, err), CKPT_EUSAGE);
}
