/* row_product: as sums in f64, and a row's bits whatever other rows and columns are beside it. */
#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/cpu/row_product.h"

enum { M = 13, N = 87, K = 150 };

static float x[M * K], w[N * K], y[M * N], one[N];

static void fill(float *to, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        to[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
}

static void product(bool nn, int m, int n, int k, const float *a, int first, bool add, float *to)
{
    if (nn)
        row_product_nn(m, n, k, a, K, w + first, N, add, to, N);
    else
        row_product_nt(m, n, k, a, K, w + first * K, K, add, to, N);
}

static void check(bool nn, int m, int n, int k, bool add)
{
    fill(y, M * N, 3);
    product(nn, m, n, k, x, 0, add, y);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float was[M * N];
            double sum;

            fill(was, M * N, 3);
            sum = add ? (double)was[i * N + j] : 0;
            for (int r = 0; r < k; r++)
                sum += (double)x[i * K + r] * (double)(nn ? w[r * N + j] : w[j * K + r]);
            assert_true(fabs(sum - (double)y[i * N + j]) <= 2e-5);
        }
}

TEST(sums_are_those_of_doubles)
{
    static const int sizes[][3] = {{1, 1, 1}, {2, 3, 15}, {4, 6, 16}, {5, 7, 17}, {3, 65, 33}};

    fill(x, M * K, 1);
    fill(w, N * K, 2);
    for (int nn = 0; nn < 2; nn++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            check(nn, sizes[i][0], sizes[i][1], sizes[i][2], false);
            check(nn, sizes[i][0], sizes[i][1], sizes[i][2], true);
        }
}

TEST(a_row_has_the_same_bits_alone_and_in_any_cut)
{
    fill(x, M * K, 1);
    fill(w, N * K, 2);
    for (int nn = 0; nn < 2; nn++) {
        product(nn, M, N, K, x, 0, false, y);
        for (int i = 0; i < M; i++)
            for (int first = 0; first < N; first += 29) {
                product(nn, 1, 29, K, x + i * K, first, false, one);
                assert_memory_equal(one, y + i * N + first, 29 * sizeof *one);
            }
    }
}

TEST(one_row_alone)
{
    static const int columns[] = {32, 16, 64, 87, 5}, terms[] = {1, 3, 4, 150};

    fill(x, M * K, 1);
    fill(w, N * K, 2);
    for (size_t c = 0; c < sizeof columns / sizeof columns[0]; c++)
        for (size_t t = 0; t < sizeof terms / sizeof terms[0]; t++) {
            row_product_sum(columns[c], terms[t], x, w, N, 0.5f, one);
            for (int j = 0; j < columns[c]; j++) {
                double sum = 0;

                for (int r = 0; r < terms[t]; r++)
                    sum += (double)x[r] * (double)w[r * N + j];
                assert_true(fabs(sum / 2 - (double)one[j]) < 1e-5);
            }
        }
}
