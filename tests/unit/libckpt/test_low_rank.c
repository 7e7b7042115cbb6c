/* low_rank: exact where the rank suffices, near the optimum where it does not, the same bits. */
#include "tests/unit/unit.h"

#include <math.h>

#include "libckpt/lora/low_rank.h"

struct matrix {
    int64_t m, n;
    float  *d;
    int     passes_until_failure;       /* 0: never */
};

static int read_rows(void *ctx, int64_t row, int64_t n, float *d, struct ckpt_err *err)
{
    struct matrix *x = ctx;

    assert_true(row >= 0 && n > 0 && row + n <= x->m);
    if (row == 0 && x->passes_until_failure && --x->passes_until_failure == 0)
        return ckpt_fail(err, CKPT_EIO, "torn");
    memcpy(d, x->d + row * x->n, (size_t)(n * x->n) * sizeof *d);
    return 0;
}

static double next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / (double)(1u << 31) * 2 - 1;
}

/* Sum over p of value[p] * u_p v_p^T, u and v random. */
static struct matrix make(int64_t m, int64_t n, const double *value, int64_t k)
{
    struct matrix x = {m, n, calloc((size_t)(m * n), sizeof(float)), 0};
    double *u = malloc((size_t)(m + n) * sizeof *u);
    uint64_t state = 7;

    for (int64_t p = 0; p < k; p++) {
        for (int64_t i = 0; i < m + n; i++)
            u[i] = next(&state);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                x.d[i * n + j] += (float)(value[p] * u[i] * u[m + j]);
    }
    free(u);
    return x;
}

/* Squares of what left @ right^T misses. */
static double missed(const struct matrix *x, const float *left, const float *right, int64_t r)
{
    double sum = 0;

    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            double d = x->d[i * x->n + j];

            for (int64_t p = 0; p < r; p++)
                d -= (double)left[i * r + p] * right[j * r + p];
            sum += d * d;
        }
    return sum;
}

TEST(a_matrix_of_that_rank_is_met)
{
    static const double value[] = {3, 1, 0.1, 0.01};
    static const struct { int64_t m, n, r; } row[] = {
        {60, 37, 4}, {37, 60, 4}, {5, 200, 4}, {200, 4, 4}, {70, 33, 20}, {1, 9, 1}, {4, 4, 4},
    };

    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        struct matrix x = make(row[i].m, row[i].n, value, row[i].r < 4 ? row[i].r : 4);
        float *left = malloc((size_t)(x.m * row[i].r) * sizeof *left);
        float *right = malloc((size_t)(x.n * row[i].r) * sizeof *right);
        struct ckpt_err err = {0};
        double whole, kept, rest;

        assert_int_equal(ckpt_low_rank(left, right, &whole, &kept, x.m, x.n, row[i].r, read_rows,
                                       &x, &err), 0);
        rest = missed(&x, left, right, row[i].r);
        if (!(rest <= 1e-11 * whole) || fabs(kept - whole) > 1e-6 * whole)
            fail_msg("row %zu: %g of %g missed, %g kept", i, rest, whole, kept);
        free(x.d);
        free(left);
        free(right);
    }
}

/* The optimum is the sum of the smaller eigenvalues of D^T D. */
TEST_ERR(above_it_the_optimum_is_near)
{
    double value[60], g[60 * 60] = {0}, v[60 * 60], eigen[60], best = 0, whole, kept, rest;
    float left[80 * 10], right[60 * 10];
    struct matrix x;

    for (int i = 0; i < 60; i++)
        value[i] = 1 / (1 + 0.1 * i);
    x = make(80, 60, value, 60);
    for (int i = 0; i < 80; i++)
        for (int p = 0; p < 60; p++)
            for (int q = 0; q < 60; q++)
                g[p * 60 + q] += (double)x.d[i * 60 + p] * x.d[i * 60 + q];
    ckpt_low_rank_eigen(eigen, v, g, 60);
    for (int i = 10; i < 60; i++)
        best += eigen[i];
    assert_int_equal(ckpt_low_rank(left, right, &whole, &kept, 80, 60, 10, read_rows, &x, err),
                     0);
    rest = missed(&x, left, right, 10);
    if (!(rest >= best * 0.9999 && rest <= best * 1.005) || fabs(whole - kept - rest) > 1e-3 * rest)
        fail_msg("%g is missed, %g at best; %g of %g said to be kept", rest, best, kept, whole);
    for (int p = 0; p < 10; p++) {              /* columns have the singular value's root */
        double l = 0, r = 0;

        for (int i = 0; i < 80; i++)
            l += (double)left[i * 10 + p] * left[i * 10 + p];
        for (int i = 0; i < 60; i++)
            r += (double)right[i * 10 + p] * right[i * 10 + p];
        assert_true(fabs(l - r) < 1e-3 * l && fabs(l - sqrt(eigen[p])) < 0.01 * l);
    }
    free(x.d);
}

TEST_ERR(the_same_matrix_gives_the_same_bits)
{
    static const double value[] = {1, 1, 1, 1, 1, 1};
    struct matrix x = make(2100, 600, value, 6);        /* more than one block of rows */
    float *a = malloc(2700 * 8 * sizeof *a);
    double whole, kept;

    for (int k = 0; k < 2; k++)
        assert_int_equal(ckpt_low_rank(a + k * 2700 * 4, a + k * 2700 * 4 + 2100 * 4, &whole,
                                       &kept, 2100, 600, 4, read_rows, &x, err), 0);
    assert_memory_equal(a, a + 2700 * 4, 2700 * 4 * sizeof *a);
    free(a);
    free(x.d);
}

TEST_ERR(what_cannot_be_read_or_is_no_number_is_told)
{
    static const double value[] = {1, 1};
    struct matrix x = make(40, 30, value, 2);
    float left[80], right[60];
    double whole, kept;

    for (int k = 1; k < 4; k++) {
        x.passes_until_failure = k;
        assert_int_equal(ckpt_low_rank(left, right, &whole, &kept, 40, 30, 2, read_rows, &x, err),
                         CKPT_EIO);
    }
    x.passes_until_failure = 0;
    x.d[33] = NAN;
    assert_int_equal(ckpt_low_rank(left, right, &whole, &kept, 40, 30, 2, read_rows, &x, err),
                     CKPT_EFORMAT);
    memset(x.d, 0, 1200 * sizeof *x.d);
    assert_int_equal(ckpt_low_rank(left, right, &whole, &kept, 40, 30, 2, read_rows, &x, err), 0);
    for (int i = 0; i < 80; i++)
        assert_true(left[i] == 0);
    free(x.d);
}
