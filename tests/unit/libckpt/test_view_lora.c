/* view_lora: any range as the whole, bounded memory, ties that end where one side changes. */
#include "tests/unit/store.h"

#include <math.h>
#include <stdio.h>

#include "libckpt/base/pool.h"
#include "libckpt/lora/view.h"

#define NONE CKPT_LORA_NONE

static const struct store_row base_rows[] = {
    {"w", CKPT_F32, 2, {300, 70}, 0},   {"t", CKPT_F16, 2, {70, 300}, 0},
    {"d", CKPT_F64, 2, {9, 5}, 0},      {"tied", CKPT_F32, 2, {300, 70}, 1},
    {"plain", CKPT_U8, 1, {100}, 0},    {"bias", CKPT_F32, 1, {40}, 0},
};
static const struct store_row adapter_rows[] = {
    {"A", CKPT_BF16, 2, {5, 70}, 0},    {"B", CKPT_F16, 2, {300, 5}, 0},
    {"m", CKPT_F32, 1, {300}, 0},       {"rows", CKPT_F64, 2, {2, 70}, 0},
    {"bias", CKPT_C128, 1, {40}, 0},    {"A2", CKPT_F32, 2, {6, 5}, 0},
    {"B2", CKPT_F32, 2, {9, 6}, 0},     {"bias2", CKPT_F64, 1, {40}, 0},
};
#define N_BASE (sizeof base_rows / sizeof base_rows[0])

static struct ckpt_lora_update update(size_t base, size_t a, size_t b, bool transposed)
{
    return (struct ckpt_lora_update){.base = base, .weight = 1, .own = NONE, .a = a, .b = b,
                                     .scale = 0.5f, .transposed = transposed, .magnitude = NONE,
                                     .add = NONE, .rows = NONE};
}

static int view(struct ckpt_source **out, const struct ckpt_lora_update *u, size_t n, int *closed,
                struct ckpt_err *err)
{
    struct ckpt_source *adapter;

    memset(err, 0, sizeof *err);
    *closed = 0;
    adapter = store_source(adapter_rows, 8, closed);
    return ckpt_view_lora(out, store_source(base_rows, N_BASE, closed), &adapter, 1, u, n, err);
}

static struct ckpt_source *must_view(const struct ckpt_lora_update *u, size_t n, int *closed)
{
    struct ckpt_source *s;
    struct ckpt_err err;

    if (view(&s, u, n, closed, &err))
        fail_msg("%s", err.text);
    return s;
}

/* Tensor i read in ranges of n elements is tensor i read at once. */
static void assert_ranges(struct ckpt_source *s, size_t i, int64_t n)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(s, i);
    size_t width = ckpt_dtype_size(t->dtype);
    unsigned char *all = store_whole(s, i), *part = malloc((size_t)n * width);
    struct ckpt_err err = {0};

    for (int64_t at = 0; at < t->numel; at += n) {
        int64_t k = t->numel - at < n ? t->numel - at : n;

        assert_int_equal(ckpt_source_read(s, i, at, k, part, &err), 0);
        if (memcmp(part, all + (size_t)at * width, (size_t)k * width) != 0)
            fail_msg("%s: [%lld, +%lld) differs", t->name, (long long)at, (long long)k);
    }
    free(all);
    free(part);
}

TEST(every_range_is_a_part_of_the_whole)
{
    static const int64_t row[] = {299, 7};
    struct ckpt_lora_update u[3] = {update(0, 0, 1, false), update(1, 0, 1, true),
                                    update(2, 5, 6, false)};
    struct ckpt_source *s;
    int closed;

    u[0].magnitude = 2;
    u[0].rows = 3;
    u[0].row = row;
    u[0].n_row = 2;
    s = must_view(u, 3, &closed);
    for (size_t i = 0; i < 3; i++)
        for (int64_t n = 1; n < 30000; n = n * 7 + 4)
            assert_ranges(s, i, n);
    ckpt_source_close(s);
    assert_int_equal(closed, 2);
}

/* The file's bytes as the tensors of the store have them, multiplied out in f64. */
TEST(the_product_is_added)
{
    struct ckpt_lora_update u = update(2, 5, 6, false);
    struct ckpt_source *s = NULL, *b = store_source(base_rows, N_BASE, NULL);
    struct ckpt_source *a = store_source(adapter_rows, 8, NULL);
    unsigned char *w = store_whole(b, 2), *fa = store_whole(a, 5), *fb = store_whole(a, 6), *found;
    int closed;

    s = must_view(&u, 1, &closed);
    found = store_whole(s, 2);
    for (size_t i = 0; i < 45; i++) {
        double x, y;
        float d = 0;

        for (size_t r = 0; r < 6; r++) {
            float p, q;

            memcpy(&p, fb + (i / 5 * 6 + r) * 4, 4);
            memcpy(&q, fa + (r * 5 + i % 5) * 4, 4);
            d += p * q;
        }
        memcpy(&x, w + i * 8, 8);
        memcpy(&y, found + i * 8, 8);
        x += (double)(0.5f * d);
        assert_memory_equal(&x, &y, 8);
    }
    free(w);
    free(fa);
    free(fb);
    free(found);
    ckpt_source_close(a);
    ckpt_source_close(b);
    ckpt_source_close(s);
}

TEST(a_tie_ends_where_one_side_changes)
{
    struct ckpt_lora_update u = update(0, 0, 1, false), other = update(2, 5, 6, false);
    struct ckpt_source *s;
    struct ckpt_extent e;
    int closed;

    s = must_view(&other, 1, &closed);
    assert_int_equal(ckpt_source_tensor(s, 3)->alias_of, 0);
    assert_true(ckpt_source_locate(s, 3, 0, 10, &e));
    assert_false(ckpt_source_locate(s, 2, 0, 10, &e));
    assert_int_equal(ckpt_source_extras(s, &(const struct ckpt_extra *){NULL}), 1);
    ckpt_source_close(s);
    s = must_view(&u, 1, &closed);
    assert_int_equal(ckpt_source_tensor(s, 3)->alias_of, 3);
    ckpt_source_close(s);
}

TEST(a_further_tensor_starts_from_the_base)
{
    struct ckpt_lora_update u[2] = {update(4, NONE, NONE, false), update(0, 0, 1, false)};
    struct ckpt_source *s;
    unsigned char *x, *y;
    int closed;

    u[0].as = "copy";
    u[1].as = "merged";
    s = must_view(u, 2, &closed);
    assert_int_equal(ckpt_source_count(s), N_BASE + 2);
    x = store_whole(s, 4);
    y = store_whole(s, ckpt_source_find(s, "copy"));
    assert_memory_equal(x, y, 100);
    free(x);
    free(y);
    x = store_whole(s, 0);
    y = store_whole(s, ckpt_source_find(s, "merged"));
    assert_memory_not_equal(x, y, 300 * 70 * 4);
    free(x);
    free(y);
    ckpt_source_close(s);
    u[1].as = "w";
    assert_int_equal(view(&s, u, 2, &closed, &(struct ckpt_err){0}), CKPT_EFORMAT);
    assert_int_equal(closed, 2);
}

TEST_ERR(copies_that_cannot_be_converted_are_refused)
{
    struct ckpt_lora_update u = update(5, NONE, NONE, false);
    struct ckpt_source *s;
    unsigned char *p;
    int closed;

    u.own = 4;                          /* C128 for F32 */
    assert_int_equal(view(&s, &u, 1, &closed, err), CKPT_EUNSUPPORTED);
    assert_int_equal(closed, 2);
    u.own = 7;
    s = must_view(&u, 1, &closed);
    p = store_whole(s, 5);
    free(p);
    ckpt_source_close(s);
    u.own = 2;
    assert_int_equal(view(&s, &u, 1, &closed, err), CKPT_EMISMATCH);
    if (!strstr(err->text, "[40]") || !strstr(err->text, "[300]"))
        fail_msg("%s", err->text);
}

TEST_ERR(two_updates_of_one_tensor_are_refused)
{
    struct ckpt_lora_update u[2] = {update(0, 0, 1, false), update(0, 0, 1, false)};
    struct ckpt_source *s;
    int closed;

    assert_int_equal(view(&s, u, 2, &closed, err), CKPT_EMISMATCH);
    assert_null(s);
    assert_int_equal(closed, 2);
}

/* -- parts, and sums of several adapters ------------------------------------------------------ */

/* Two experts of [3, 4] and [3, 4] in one tensor; A [2 x 2, 4], B [3, 2 x 2]. */
static const struct store_row stack_rows[] = {{"x", CKPT_F32, 3, {2, 3, 4}, 0},
                                              {"turned", CKPT_F32, 3, {2, 4, 3}, 0}};
static const struct store_row stack_factors[] = {{"A", CKPT_F32, 2, {4, 4}, 0},
                                                 {"B", CKPT_F32, 2, {3, 4}, 0}};

static struct ckpt_lora_update expert(size_t base, int64_t e, bool turned)
{
    struct ckpt_lora_update u = update(base, 0, 1, turned);

    u.part = (struct ckpt_lora_part){.first = e * 12, .n_row = turned ? 4 : 3,
                                     .n_col = turned ? 3 : 4, .rank = 2, .a_row = 2 * e,
                                     .b_col = e, .b_step = 2};
    return u;
}

static int view_stack(struct ckpt_source **out, const struct ckpt_lora_update *u, size_t n,
                      struct ckpt_err *err)
{
    struct ckpt_source *adapter = store_source(stack_factors, 2, NULL);

    memset(err, 0, sizeof *err);
    return ckpt_view_lora(out, store_source(stack_rows, 2, NULL), &adapter, 1, u, n, err);
}

TEST_ERR(a_part_gets_its_rows_and_columns)
{
    struct ckpt_lora_update u[4] = {expert(0, 0, false), expert(0, 1, false), expert(1, 0, true),
                                    expert(1, 1, true)};
    struct ckpt_source *s, *b = store_source(stack_rows, 2, NULL);
    struct ckpt_source *f = store_source(stack_factors, 2, NULL);
    float *fa = store_whole(f, 0), *fb = store_whole(f, 1);

    if (view_stack(&s, u, 4, err))
        fail_msg("%s", err->text);
    for (size_t t = 0; t < 2; t++) {
        float *w = store_whole(b, t), *found = store_whole(s, t);

        for (size_t k = 0; k < 24; k++) {
            size_t e = k / 12, o = t ? k % 3 : k % 12 / 4, i = t ? k % 12 / 3 : k % 4;
            float d = fb[o * 4 + e] * fa[2 * e * 4 + i] +
                      fb[o * 4 + 2 + e] * fa[(2 * e + 1) * 4 + i];

            assert_true(fabs((double)(found[k] - (w[k] + 0.5f * d))) <= 1e-6);
        }
        for (int64_t n = 1; n < 24; n += 5)
            assert_ranges(s, t, n);
        free(w);
        free(found);
    }
    free(fa);
    free(fb);
    ckpt_source_close(s);
    ckpt_source_close(b);
    ckpt_source_close(f);
}

TEST_ERR(parts_outside_of_their_tensors_are_refused)
{
    struct ckpt_lora_update u[2] = {expert(0, 0, false), expert(0, 1, false)};
    struct ckpt_source *s;

    for (int k = 0; k < 6; k++) {
        u[1] = expert(0, 1, false);
        u[1].part.first = k == 0 ? 11 : k == 1 ? 13 : 12;       /* overlaps, ends outside */
        u[1].part.a_row = k == 2 ? 3 : 2;
        u[1].part.b_col = k == 3 ? 4 : 1;
        u[1].part.b_step = k == 4 ? 3 : 2;
        u[1].part.b_row = k == 5 ? 1 : 0;
        assert_int_equal(view_stack(&s, u, 2, err), CKPT_EMISMATCH);
        assert_null(s);
    }
}

/* W + 0.75 (W1 - W) - 0.5 (W2 - W) for products, a copy, lengths, rows and a vector. */
TEST_ERR(changes_of_several_adapters_add_up)
{
    static const int64_t row[] = {299, 7};
    struct ckpt_lora_update u[4] = {update(0, 0, 1, false), update(0, 0, 1, false),
                                    update(5, NONE, NONE, false), update(5, NONE, NONE, false)};
    struct ckpt_source *adapter[2], *s, *b = store_source(base_rows, N_BASE, NULL), *one[2];
    size_t checked = 0;
    int closed;

    u[0].magnitude = 2;
    u[0].rows = 3;
    u[0].row = row;
    u[0].n_row = 2;
    u[2].own = 7;
    u[3].add = 7;
    for (size_t i = 0; i < 2; i++)
        one[i] = must_view((struct ckpt_lora_update[]){u[i], u[2 + i]}, 2, &closed);
    for (size_t i = 0; i < 4; i++) {
        u[i].from = i % 2;
        u[i].weight = i % 2 ? -0.5f : 0.75f;
    }
    for (size_t i = 0; i < 2; i++)
        adapter[i] = store_source(adapter_rows, 8, NULL);
    if (ckpt_view_lora(&s, store_source(base_rows, N_BASE, NULL), adapter, 2, u, 4, err))
        fail_msg("%s", err->text);
    for (size_t t = 0; t < 6; t += 5) {
        float *w = store_whole(b, t), *found = store_whole(s, t);
        float *w1 = store_whole(one[0], t), *w2 = store_whole(one[1], t);

        for (int64_t k = 0; k < ckpt_source_tensor(s, t)->numel; k++) {
            double size = fabs((double)w[k]) + fabs((double)w1[k]) + fabs((double)w2[k]);
            double want = w[k] + 0.75 * ((double)w1[k] - w[k]) - 0.5 * ((double)w2[k] - w[k]);

            if (!isfinite(want))
                continue;               /* the store has such too */
            checked++;
            if (!(fabs(found[k] - want) <= 1e-6 * size))
                fail_msg("tensor %zu, element %lld: %g, %g expected", t, (long long)k,
                         (double)found[k], want);
        }
        free(w);
        free(found);
        free(w1);
        free(w2);
        assert_ranges(s, t, 97);
    }
    assert_true(checked > 5000);
    for (size_t i = 0; i < 2; i++)
        ckpt_source_close(one[i]);
    ckpt_source_close(s);
    ckpt_source_close(b);
}

/* -- many pairs, many threads ---------------------------------------------------------------- */

#define MANY 60

struct crowd {
    struct ckpt_source *s;
    unsigned char      *want[MANY];
};

static int read_one(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct crowd *c = ctx;
    unsigned char found[32 * 32 * 4];
    size_t t = i * 7 % MANY;

    (void)worker;
    if (ckpt_source_read(c->s, t, 0, 32 * 32, found, err))
        return err->code;
    return memcmp(found, c->want[t], sizeof found) == 0
               ? 0 : ckpt_fail(err, CKPT_ENO, "tensor %zu differs", t);
}

TEST_ERR(threads_and_pairs_that_come_and_go)
{
    struct store_row rows[MANY], factors[2 * MANY];
    struct ckpt_lora_update u[MANY];
    char names[MANY][8], factor_names[2 * MANY][8];
    struct ckpt_source *adapter;
    struct crowd c;

    for (size_t i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "w%zu", i);
        rows[i] = (struct store_row){names[i], CKPT_F32, 2, {32, 32}, 0};
        for (size_t k = 0; k < 2; k++) {
            snprintf(factor_names[2 * i + k], sizeof names[i], "f%zu", 2 * i + k);
            factors[2 * i + k] = (struct store_row){factor_names[2 * i + k], CKPT_BF16, 2,
                                                    {k ? 32 : 3, k ? 3 : 32}, 0};
        }
        u[i] = update(i, 2 * i, 2 * i + 1, i % 2);
    }
    adapter = store_source(factors, 2 * MANY, NULL);
    assert_int_equal(ckpt_view_lora(&c.s, store_source(rows, MANY, NULL), &adapter, 1, u, MANY,
                                    err), 0);
    for (size_t i = 0; i < MANY; i++)
        c.want[i] = store_whole(c.s, i);
    if (ckpt_pool_run(4, 20 * MANY, read_one, &c, err))
        fail_msg("%s", err->text);
    for (size_t i = 0; i < MANY; i++)
        free(c.want[i]);
    ckpt_source_close(c.s);
}
