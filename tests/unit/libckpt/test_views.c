/* views - each changes one thing and passes the rest; closing the last closes all. */
#include "tests/unit/store.h"

#include <stdio.h>

#include "libckpt/convert.h"
#include "libckpt/view.h"
#include "libckpt/views/chain.h"

static const struct store_row rows[] = {
    {"model.a", CKPT_F32, 2, {70, 501}, 0},     {"model.b", CKPT_BF16, 1, {9}, 0},
    {"ids", CKPT_I64, 1, {5}, 0},               {"lm_head", CKPT_F32, 2, {70, 501}, 1},
    {"mask", CKPT_BOOL, 1, {3}, 0},             {"z", CKPT_C64, 1, {4}, 0},
    {"third", CKPT_F32, 2, {70, 501}, 1},       {"scalar", CKPT_F64, 0, {0}, 0},
    {"empty", CKPT_F32, 2, {0, 7}, 0},
};

#define N_ROWS (sizeof rows / sizeof rows[0])

static const char *name_of(const struct ckpt_source *s, size_t i)
{
    return ckpt_source_tensor(s, i)->name;
}

/* Any range of the view is the range of its source, converted. */
static void same_elements(struct ckpt_source *view, size_t i, struct ckpt_source *plain,
                          size_t k)
{
    const struct ckpt_tensor *to = ckpt_source_tensor(view, i),
                             *t = ckpt_source_tensor(plain, k);
    size_t in = ckpt_dtype_size(t->dtype), width = ckpt_dtype_size(to->dtype);
    unsigned char *src = malloc((size_t)t->numel * in + 1);
    unsigned char *want = malloc((size_t)t->numel * width + 1);
    unsigned char *got = malloc((size_t)t->numel * width + 16);
    struct ckpt_err err = {0};

    assert_int_equal(to->numel, t->numel);
    assert_true(ckpt_shape_equal(&to->shape, &t->shape));
    assert_int_equal(ckpt_source_read(plain, k, 0, t->numel, src, &err), 0);
    ckpt_convert(want, to->dtype, src, t->dtype, (size_t)t->numel);
    for (int64_t start = 0; start <= t->numel; start += 1 + t->numel / 5) {
        int64_t count = (t->numel - start) * 3 / 4 + 1;

        count = count > t->numel - start ? t->numel - start : count;
        memset(got, 0xa5, (size_t)count * width + 16);
        assert_int_equal(ckpt_source_read(view, i, start, count, got, &err), 0);
        assert_memory_equal(got, want + (size_t)start * width, (size_t)count * width);
        assert_int_equal(got[(size_t)count * width], 0xa5);
    }
    free(src);
    free(want);
    free(got);
}

/* Extras and facts pass through. */
static void same_rest(const struct ckpt_source *view)
{
    assert_non_null(ckpt_source_extra(view, "side"));
    assert_int_equal(json_integer_value(json_object_get(ckpt_source_info(view), "step")), 7);
}

TEST(cast_every_pair_of_floats)
{
    static const enum ckpt_dtype floats[] = {CKPT_F16, CKPT_BF16, CKPT_F32, CKPT_F64,
                                             CKPT_F8_E4M3};

    for (size_t from = 0; from < 5; from++)
        for (size_t to = 0; to < 5; to++) {
            struct store_row row = {"x", floats[from], 1, {40000}, 0};
            const struct ckpt_cast_rule rule = {"*", floats[to]};
            struct ckpt_source *plain = store_source(&row, 1, NULL), *view;
            struct ckpt_extent at;
            struct ckpt_err err = {0};
            int closed = 0;

            assert_int_equal(
                ckpt_view_cast(&view, store_source(&row, 1, &closed), &rule, 1, &err), 0);
            assert_int_equal(ckpt_source_tensor(view, 0)->dtype, floats[to]);
            same_elements(view, 0, plain, 0);
            assert_int_equal(ckpt_source_locate(view, 0, 5, 100, &at), from == to);
            same_rest(view);
            ckpt_source_close(view);
            assert_int_equal(closed, 1);
            ckpt_source_close(plain);
        }
}

TEST_ERR(cast_rules)
{
    const struct ckpt_cast_rule rule[] = {{"*", CKPT_BF16}, {"model.?", CKPT_F16},
                                          {"mask", CKPT_U8}, {"third", CKPT_F32}};
    static const enum ckpt_dtype want[N_ROWS] = {CKPT_F16,  CKPT_F16,  CKPT_I64,
                                                 CKPT_BF16, CKPT_U8,   CKPT_C64,
                                                 CKPT_F32,  CKPT_BF16, CKPT_BF16};
    struct ckpt_source *plain = store_source(rows, N_ROWS, NULL), *view;

    assert_int_equal(ckpt_view_cast(&view, store_source(rows, N_ROWS, NULL), rule, 4, err), 0);
    for (size_t i = 0; i < N_ROWS; i++) {
        assert_int_equal(ckpt_source_tensor(view, i)->dtype, want[i]);
        same_elements(view, i, plain, i);
    }
    assert_int_equal(ckpt_source_tensor(view, 3)->alias_of, 3);     /* other dtypes: not tied */
    assert_int_equal(ckpt_source_tensor(view, 6)->alias_of, 6);
    ckpt_source_close(view);
    assert_int_equal(ckpt_view_cast(&view, plain, rule, 1, err), 0);
    assert_int_equal(ckpt_source_tensor(view, 3)->alias_of, 0);
    assert_int_equal(ckpt_source_tensor(view, 6)->alias_of, 0);
    ckpt_source_close(view);
}

TEST_ERR(cast_refuses_complex)
{
    const struct ckpt_cast_rule rule = {"z", CKPT_F32};
    struct ckpt_source *view;
    int closed = 0;

    assert_int_equal(ckpt_view_cast(&view, store_source(rows, N_ROWS, &closed), &rule, 1, err),
                     CKPT_EUNSUPPORTED);
    assert_string_equal(err->text, "tensor z: C64 cannot be cast to F32");
    assert_null(view);
    assert_int_equal(closed, 1);
}

TEST_ERR(rename_first_matching_prefix)
{
    const struct ckpt_rename_rule rule[] = {
        {"model.b", "other.b"}, {"model.", "m."}, {"lm", ""}};
    static const char *const want[] = {"m.a", "other.b", "ids", "_head"};
    struct ckpt_source *plain = store_source(rows, N_ROWS, NULL), *view;

    assert_int_equal(ckpt_view_rename(&view, store_source(rows, N_ROWS, NULL), rule, 3, err),
                     0);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(name_of(view, i), want[i]);
        assert_int_equal(ckpt_source_find(view, want[i]), i);
        same_elements(view, i, plain, i);
    }
    assert_int_equal(ckpt_source_tensor(view, 3)->alias_of, 0);
    same_rest(view);
    ckpt_source_close(view);
    ckpt_source_close(plain);
}

TEST_ERR(rename_refuses_one_name_twice)
{
    const struct ckpt_rename_rule rule = {"lm_head", "ids"};
    struct ckpt_source *view;
    int closed = 0;

    assert_int_equal(
        ckpt_view_rename(&view, store_source(rows, N_ROWS, &closed), &rule, 1, err),
        CKPT_EFORMAT);
    assert_string_equal(err->reason, "duplicate");
    assert_int_equal(closed, 1);
}

TEST_ERR(select_keeps_order_and_ties)
{
    const size_t keep[] = {6, 2, 3};
    struct ckpt_source *plain = store_source(rows, N_ROWS, NULL), *view;

    assert_int_equal(ckpt_view_select(&view, store_source(rows, N_ROWS, NULL), keep, 3, err),
                     0);
    assert_int_equal(ckpt_source_count(view), 3);
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(name_of(view, i), rows[keep[i]].name);
        same_elements(view, i, plain, keep[i]);
    }
    assert_int_equal(ckpt_source_tensor(view, 0)->alias_of, 0);     /* the first that is left */
    assert_int_equal(ckpt_source_tensor(view, 2)->alias_of, 0);
    same_rest(view);
    ckpt_source_close(view);
    ckpt_source_close(plain);
}

TEST_ERR(select_refuses_bad_indices)
{
    const size_t beyond[] = {0, N_ROWS}, twice[] = {1, 1};
    struct ckpt_source *view;
    int closed = 0;

    assert_int_equal(
        ckpt_view_select(&view, store_source(rows, N_ROWS, &closed), beyond, 2, err),
        CKPT_ESTATE);
    assert_int_equal(
        ckpt_view_select(&view, store_source(rows, N_ROWS, &closed), twice, 2, err),
        CKPT_EFORMAT);
    assert_int_equal(closed, 2);
}

static void filter(const char *include, const char *exclude, const char *want)
{
    struct ckpt_source *view;
    struct ckpt_err err = {0};
    char got[256] = "";

    assert_int_equal(ckpt_view_filter(&view, store_source(rows, N_ROWS, NULL), &include,
                                      include != NULL, &exclude, exclude != NULL, &err), 0);
    for (size_t i = 0; i < ckpt_source_count(view); i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s ", name_of(view, i));
    assert_string_equal(got, want);
    ckpt_source_close(view);
}

TEST_ERR(filter_by_globs)
{
    const char *none = "nothing*";
    struct ckpt_source *view;
    int closed = 0;

    filter("model.*", NULL, "model.a model.b ");
    filter("model.*", "*.a", "model.b ");
    filter(NULL, "*[admy]*", "z ");
    filter(NULL, "*a*", "model.b ids z third empty ");
    filter("*", "*", "");
    assert_int_equal(
        ckpt_view_filter(&view, store_source(rows, N_ROWS, &closed), &none, 1, NULL, 0, err),
        CKPT_ENOTFOUND);
    assert_string_equal(err->text, "no tensor matches nothing*");
    assert_int_equal(closed, 1);
}

TEST_ERR(join_several)
{
    const struct ckpt_rename_rule rule = {"", "second."};
    struct ckpt_source *plain = store_source(rows, N_ROWS, NULL), *both[2], *view;
    const struct ckpt_extra *extra;
    struct ckpt_extent at;
    int closed = 0;

    both[0] = store_source(rows, N_ROWS, &closed);
    assert_int_equal(ckpt_view_rename(&both[1], store_source(rows, N_ROWS, &closed), &rule, 1,
                                      err), 0);
    assert_int_equal(ckpt_view_join(&view, both, 2, err), 0);
    assert_int_equal(ckpt_source_count(view), 2 * N_ROWS);
    for (size_t i = 0; i < 2 * N_ROWS; i++)
        same_elements(view, i, plain, i % N_ROWS);
    assert_string_equal(name_of(view, N_ROWS + 2), "second.ids");
    assert_int_equal(ckpt_source_tensor(view, N_ROWS + 6)->alias_of, N_ROWS);
    assert_true(ckpt_source_locate(view, N_ROWS, 1, 2, &at));
    assert_int_equal(at.offset, 4);
    assert_int_equal(ckpt_source_extras(view, &extra), 1);      /* both have "side" */
    same_rest(view);
    ckpt_source_close(view);
    assert_int_equal(closed, 2);
    ckpt_source_close(plain);
}

TEST_ERR(join_refuses_one_name_twice_and_takes_none)
{
    struct ckpt_source *both[2], *view;
    int closed = 0;

    both[0] = store_source(rows, N_ROWS, &closed);
    both[1] = store_source(rows, 1, &closed);
    assert_int_equal(ckpt_view_join(&view, both, 2, err), CKPT_EFORMAT);
    assert_string_equal(err->reason, "duplicate");
    assert_int_equal(closed, 2);
    assert_int_equal(ckpt_view_join(&view, NULL, 0, err), 0);
    assert_int_equal(ckpt_source_count(view), 0);
    assert_true(json_is_object(ckpt_source_info(view)));
    ckpt_source_close(view);
}

/* All of them on top of each other, read at the end. */
TEST_ERR(chain_of_views)
{
    const struct ckpt_rename_rule prefix = {"model.", ""};
    const struct ckpt_cast_rule cast = {"*", CKPT_F32}, back = {"*", CKPT_F16};
    const char *include = "b";
    struct ckpt_source *plain = store_source(rows, N_ROWS, NULL), *v;
    uint16_t got[9], src[9];
    float f[9];
    int closed = 0;

    v = store_source(rows, N_ROWS, &closed);
    assert_int_equal(ckpt_view_cast(&v, v, &cast, 1, err), 0);
    assert_int_equal(ckpt_view_rename(&v, v, &prefix, 1, err), 0);
    assert_int_equal(ckpt_view_filter(&v, v, &include, 1, NULL, 0, err), 0);
    assert_int_equal(ckpt_view_cast(&v, v, &back, 1, err), 0);
    assert_int_equal(ckpt_view_join(&v, &v, 1, err), 0);
    assert_int_equal(ckpt_source_count(v), 1);
    assert_int_equal(ckpt_source_read(v, 0, 0, 9, got, err), 0);
    assert_int_equal(ckpt_source_read(plain, 1, 0, 9, src, err), 0);
    ckpt_convert(f, CKPT_F32, src, CKPT_BF16, 9);
    ckpt_convert(src, CKPT_F16, f, CKPT_F32, 9);
    assert_memory_equal(got, src, sizeof got);
    same_rest(v);
    ckpt_source_close(v);
    assert_int_equal(closed, 1);
    ckpt_source_close(plain);
}

/* The tensor is named once in an error, however many views lie above. */
static int no_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                   struct ckpt_err *err)
{
    (void)self, (void)i, (void)start, (void)count, (void)dst;
    return ckpt_fail(err, CKPT_EIO, "unreadable");
}

TEST_ERR(error_names_the_tensor_once)
{
    static const struct ckpt_source_ops ops = {.format = "bad", .read = no_read};
    const struct ckpt_cast_rule cast = {"*", CKPT_BF16};
    const struct ckpt_rename_rule rule = {"x", "y"};
    struct ckpt_shape shape = ckpt_shape_1d(3);
    struct ckpt_tensors list = {0};
    struct ckpt_source *v;
    uint16_t got[3];

    assert_int_equal(
        ckpt_tensors_add(&list, NULL, "x", 1, CKPT_F32, &shape, NULL, 0, false, err), 0);
    assert_int_equal(ckpt_source_new(&v, &ops, NULL, &list, NULL, 0, NULL, err), 0);
    assert_int_equal(ckpt_view_cast(&v, v, &cast, 1, err), 0);
    assert_int_equal(ckpt_source_read(v, 0, 0, 3, got, err), CKPT_EIO);
    assert_string_equal(err->text, "tensor x: unreadable");
    assert_int_equal(ckpt_view_rename(&v, v, &rule, 1, err), 0);
    assert_int_equal(ckpt_source_read(v, 0, 0, 3, got, err), CKPT_EIO);
    assert_string_equal(err->text, "tensor y: tensor x: unreadable");
    ckpt_source_close(v);
}

static int step_cast(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const struct ckpt_cast_rule all = {"*", CKPT_BF16};

    ++*(int *)ctx;
    return ckpt_view_cast(src, *src, &all, 1, err);
}

static int step_unchanged(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    (void)src;
    (void)err;
    ++*(int *)ctx;
    return 0;
}

/* Fails before its view is there. */
static int step_refuse(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    (void)src;
    ++*(int *)ctx;
    return ckpt_fail(err, CKPT_EUSAGE, "refused");
}

/* Fails in its view. */
static int step_filter(struct ckpt_source **src, void *ctx, struct ckpt_err *err)
{
    const char *none = "no such name";

    ++*(int *)ctx;
    return ckpt_view_filter(src, *src, &none, 1, NULL, 0, err);
}

TEST_ERR(chain_closes_all_when_a_step_fails)
{
    ckpt_chain_step *const good[] = {step_cast, step_unchanged, step_cast};
    ckpt_chain_step *const bad[][3] = {{step_cast, step_refuse, step_cast},
                                       {step_cast, step_filter, step_cast}};
    int closed = 0, steps = 0;
    struct ckpt_source *v = store_source(rows, 2, &closed);

    assert_int_equal(ckpt_chain_run(&v, good, 3, &steps, err), 0);
    assert_int_equal(steps, 3);
    assert_int_equal(ckpt_source_tensor(v, 0)->dtype, CKPT_BF16);
    ckpt_source_close(v);
    assert_int_equal(closed, 1);
    for (size_t k = 0; k < 2; k++) {
        closed = steps = 0;
        v = store_source(rows, 2, &closed);
        assert_int_equal(ckpt_chain_run(&v, bad[k], 3, &steps, err),
                         k ? CKPT_ENOTFOUND : CKPT_EUSAGE);
        assert_int_equal(steps, 2);
        assert_null(v);
        assert_int_equal(closed, 1);
    }
}
