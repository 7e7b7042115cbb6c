/* row_product - see row_product.h. */
#include "trainer/cpu/row_product.h"

#include <string.h>

#include "trainer/cpu/cpu.h"

#define LANES 16
#define ROWS  4                         /* of a tile at most, and its columns or vectors */
#define COLS  6
#define SPLIT 4                         /* sums of one row's element */
#define BLOCK 64                        /* rows of x that stay in the cache between columns */

/* Sixteen lanes are a register of AVX-512, of which there are 32: tiles of 24 sums; or two of 16
 * registers, or four: tiles of four sums. */
#define AVX512 __attribute__((target("arch=x86-64-v4")))

typedef float lanes __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias));
typedef float wide __attribute__((vector_size(LANES * sizeof(float))));

typedef float half __attribute__((vector_size(LANES / 2 * sizeof(float))));
typedef float quarter __attribute__((vector_size(LANES / 4 * sizeof(float))));

/* Halves are added until four lanes are left. */
CPU_INLINE quarter quarter_of(const wide *v)
{
    union { wide all; half part[2]; } a = {.all = *v};
    union { half all; quarter part[2]; } b = {.all = a.part[0] + a.part[1]};

    return b.part[0] + b.part[1];
}

CPU_INLINE float sum_of(const wide *v)
{
    quarter c = quarter_of(v);

    return (c[0] + c[2]) + (c[1] + c[3]);
}

/* Four sums, each added as sum_of does. */
CPU_INLINE quarter sums_of(const wide *v0, const wide *v1, const wide *v2, const wide *v3)
{
    quarter a = quarter_of(v0), b = quarter_of(v1), c = quarter_of(v2), d = quarter_of(v3);
    quarter ab = __builtin_shufflevector(a, b, 0, 1, 4, 5) +
                 __builtin_shufflevector(a, b, 2, 3, 6, 7);
    quarter cd = __builtin_shufflevector(c, d, 0, 1, 4, 5) +
                 __builtin_shufflevector(c, d, 2, 3, 6, 7);

    return __builtin_shufflevector(ab, cd, 0, 2, 4, 6) +
           __builtin_shufflevector(ab, cd, 1, 3, 5, 7);
}

CPU_INLINE void put(float *y, float sum, bool add) { *y = add ? *y + sum : sum; }

/* Two elements to y, two to z. */
CPU_INLINE void put_four(float *y, float *z, quarter sum, bool add)
{
    put(y, sum[0], add);
    put(y + 1, sum[1], add);
    put(z, sum[2], add);
    put(z + 1, sum[3], add);
}

/* A tile of rows x cols (both constants where this is inlined) elements. */
CPU_INLINE void tile_nt(int rows, int cols, int64_t k, const float *x, int64_t x_ld,
                        const float *w, int64_t ld, bool add, float *y, int64_t y_ld)
{
    wide s[ROWS][COLS] = {0};
    int64_t whole = k / LANES * LANES;

    for (int64_t j = 0; j < whole; j += LANES) {
        wide b[COLS];

        for (int c = 0; c < cols; c++)
            b[c] = *(const lanes *)(w + c * ld + j);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            wide a = *(const lanes *)(x + r * x_ld + j);

#pragma GCC unroll 6
            for (int c = 0; c < cols; c++)
                s[r][c] += a * b[c];
        }
    }
    if (whole < k) {
        size_t bytes = (size_t)(k - whole) * sizeof(float);
        wide b[COLS] = {0};

        for (int c = 0; c < cols; c++)
            memcpy(&b[c], w + c * ld + whole, bytes);
        for (int r = 0; r < rows; r++) {
            wide a = {0};

            memcpy(&a, x + r * x_ld + whole, bytes);
            for (int c = 0; c < cols; c++)
                s[r][c] += a * b[c];
        }
    }
    if (rows == ROWS && cols == COLS) { /* four sums at once: of a row, then the rest of two rows */
#pragma GCC unroll 4
        for (int r = 0; r < ROWS; r++)
            put_four(y + r * y_ld, y + r * y_ld + 2,
                     sums_of(&s[r][0], &s[r][1], &s[r][2], &s[r][3]), add);
#pragma GCC unroll 2
        for (int r = 0; r < ROWS; r += 2)
            put_four(y + r * y_ld + 4, y + (r + 1) * y_ld + 4,
                     sums_of(&s[r][4], &s[r][5], &s[r + 1][4], &s[r + 1][5]), add);
        return;
    }
    if (rows == 1 && cols == COLS) {
        put_four(y, y + 2, sums_of(&s[0][0], &s[0][1], &s[0][2], &s[0][3]), add);
        put(y + 4, sum_of(&s[0][4]), add);
        put(y + 5, sum_of(&s[0][5]), add);
        return;
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            put(y + r * y_ld + c, sum_of(&s[r][c]), add);
}

CPU_INLINE void columns_nt(int tile, int cols, int64_t m, int64_t k, const float *x,
                           int64_t x_ld, const float *w, int64_t ld, bool add, float *y,
                           int64_t y_ld)
{
    int64_t i = 0;

    for (; i + tile <= m; i += tile)
        tile_nt(tile, cols, k, x + i * x_ld, x_ld, w, ld, add, y + i * y_ld, y_ld);
    for (; i < m; i++)
        tile_nt(1, cols, k, x + i * x_ld, x_ld, w, ld, add, y + i * y_ld, y_ld);
}

CPU_INLINE void all_nt(int tile, int cols, int64_t m, int64_t n, int64_t k, const float *x,
                       int64_t x_ld, const float *w, int64_t ld, bool add, float *y,
                       int64_t y_ld)
{
    for (int64_t i = 0; i < m; i += BLOCK) {
        int64_t rows = m - i < BLOCK ? m - i : BLOCK, j = 0;
        const float *xi = x + i * x_ld;

        for (; j + cols <= n; j += cols)
            columns_nt(tile, cols, rows, k, xi, x_ld, w + j * ld, ld, add, y + i * y_ld + j,
                       y_ld);
        for (; j < n; j++)
            columns_nt(tile, 1, rows, k, xi, x_ld, w + j * ld, ld, add, y + i * y_ld + j, y_ld);
    }
}

AVX512 static void nt_512(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                          const float *w, int64_t ld, bool add, float *y, int64_t y_ld)
{
    all_nt(ROWS, COLS, m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

CPU_HOT static void nt_256(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                           const float *w, int64_t ld, bool add, float *y, int64_t y_ld)
{
    all_nt(2, 2, m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

void row_product_nt(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld, const float *w,
                    int64_t ld, bool add, float *y, int64_t y_ld)
{
    (__builtin_cpu_supports("x86-64-v4") ? nt_512 : nt_256)(m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

/* A tile of rows x (vectors of LANES columns). */
CPU_INLINE void tile_nn(int rows, int vectors, int64_t k, const float *x,
                        int64_t x_ld, const float *w, int64_t ld, bool add, float *y,
                        int64_t y_ld)
{
    wide s[ROWS][COLS] = {0};

    for (int64_t r = 0; r < k; r++) {
        wide b[COLS];

        for (int c = 0; c < vectors; c++)
            b[c] = *(const lanes *)(w + r * ld + c * LANES);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
            for (int c = 0; c < vectors; c++)
                s[i][c] += x[i * x_ld + r] * b[c];
    }
    for (int i = 0; i < rows; i++)
        for (int c = 0; c < vectors; c++)
            for (int e = 0; e < LANES; e++)
                put(y + i * y_ld + c * LANES + e, s[i][c][e], add);
}

/* The last columns, fewer than LANES: sums of the same terms in the same order. */
CPU_INLINE void rest_nn(int64_t cols, int64_t k, const float *x, const float *w,
                        int64_t ld, bool add, float *y)
{
    size_t bytes = (size_t)cols * sizeof(float);
    wide s = {0};

    for (int64_t r = 0; r < k; r++) {
        wide b = {0};

        memcpy(&b, w + r * ld, bytes);
        s += x[r] * b;
    }
    for (int64_t e = 0; e < cols; e++)
        put(y + e, s[e], add);
}

CPU_INLINE void vectors_nn(int tile, int vectors, int64_t m, int64_t k, const float *x,
                           int64_t x_ld, const float *w, int64_t ld, bool add, float *y,
                           int64_t y_ld)
{
    int64_t i = 0;

    for (; i + tile <= m; i += tile)
        tile_nn(tile, vectors, k, x + i * x_ld, x_ld, w, ld, add, y + i * y_ld, y_ld);
    for (; i < m; i++)
        tile_nn(1, vectors, k, x + i * x_ld, x_ld, w, ld, add, y + i * y_ld, y_ld);
}

CPU_INLINE void all_nn(int tile, int vectors, int64_t m, int64_t n, int64_t k, const float *x,
                       int64_t x_ld, const float *w, int64_t ld, bool add, float *y,
                       int64_t y_ld)
{
    for (int64_t i = 0; i < m; i += BLOCK) {
        int64_t rows = m - i < BLOCK ? m - i : BLOCK, j = 0;
        const float *xi = x + i * x_ld;

        for (; j + vectors * LANES <= n; j += vectors * LANES)
            vectors_nn(tile, vectors, rows, k, xi, x_ld, w + j, ld, add, y + i * y_ld + j, y_ld);
        for (; j + LANES <= n; j += LANES)
            vectors_nn(tile, 1, rows, k, xi, x_ld, w + j, ld, add, y + i * y_ld + j, y_ld);
        for (int64_t r = 0; j < n && r < rows; r++)
            rest_nn(n - j, k, xi + r * x_ld, w + j, ld, add, y + (i + r) * y_ld + j);
    }
}

AVX512 static void nn_512(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                          const float *w, int64_t ld, bool add, float *y, int64_t y_ld)
{
    all_nn(ROWS, 4, m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

CPU_HOT static void nn_256(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                           const float *w, int64_t ld, bool add, float *y, int64_t y_ld)
{
    all_nn(2, 2, m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

void row_product_nn(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld, const float *w,
                    int64_t ld, bool add, float *y, int64_t y_ld)
{
    (__builtin_cpu_supports("x86-64-v4") ? nn_512 : nn_256)(m, n, k, x, x_ld, w, ld, add, y, y_ld);
}

/* -- one row ---------------------------------------------------------------------------------- */

/* A vector's sum waits for its last term: SPLIT sums of every SPLIT-th row go on beside it. */
CPU_INLINE void columns_sum(int vectors, int64_t k, const float *x, const float *w, int64_t ld,
                            float scale, float *y)
{
    wide s[SPLIT][2] = {0};
    int64_t r = 0;

    for (; r + SPLIT <= k; r += SPLIT)
#pragma GCC unroll 4
        for (int i = 0; i < SPLIT; i++)
#pragma GCC unroll 2
            for (int c = 0; c < vectors; c++)
                s[i][c] += x[r + i] * *(const lanes *)(w + (r + i) * ld + c * LANES);
    for (; r < k; r++)
        for (int c = 0; c < vectors; c++)
            s[0][c] += x[r] * *(const lanes *)(w + r * ld + c * LANES);
    for (int c = 0; c < vectors; c++)
        *(lanes *)(y + c * LANES) = scale * ((s[0][c] + s[2][c]) + (s[1][c] + s[3][c]));
}

CPU_INLINE void all_sum(int64_t n, int64_t k, const float *x, const float *w, int64_t ld,
                        float scale, float *y)
{
    int64_t j = 0;

    for (; j + 2 * LANES <= n; j += 2 * LANES)
        columns_sum(2, k, x, w + j, ld, scale, y + j);
    for (; j + LANES <= n; j += LANES)
        columns_sum(1, k, x, w + j, ld, scale, y + j);
    if (j < n)
        rest_nn(n - j, k, x, w + j, ld, false, y + j);
    for (; j < n; j++)
        y[j] *= scale;
}

AVX512 static void sum_512(int64_t n, int64_t k, const float *x, const float *w, int64_t ld,
                           float scale, float *y)
{
    all_sum(n, k, x, w, ld, scale, y);
}

CPU_HOT static void sum_256(int64_t n, int64_t k, const float *x, const float *w, int64_t ld,
                            float scale, float *y)
{
    all_sum(n, k, x, w, ld, scale, y);
}

void row_product_sum(int64_t n, int64_t k, const float *x, const float *w, int64_t ld, float scale,
                     float *y)
{
    (__builtin_cpu_supports("x86-64-v4") ? sum_512 : sum_256)(n, k, x, w, ld, scale, y);
}
