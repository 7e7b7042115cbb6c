/* low_rank - see low_rank.h. */
#include "libckpt/lora/low_rank.h"

#include <math.h>
#include <string.h>

#include "libckpt/mem.h"

/* Compile with vector instructions; the sums are the same without them. */
#pragma GCC optimize("O3", "fp-contract=off", "no-math-errno", "no-trapping-math")
#if defined(__x86_64__)
#define HOT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define HOT
#endif

#define LANES      16           /* columns of a product computed together */
#define ROWS       4            /* rows of the matrix computed together */
#define BLOCK      ((int64_t)1 << 20)   /* elements of the matrix in memory at a time */
#define MAX_PASSES 12
#define STANDS     1e-4         /* a relative change of the sum of squares below this: converged */
#define NOTHING    1e-14        /* squares below this part of the largest count as zero */
#define SMALLEST   1e-26        /* the same for squared norms of columns */

struct work {
    int64_t           m, n, r;
    int64_t           k, cols;          /* columns iterated on; the same padded to a row's stride */
    ckpt_low_rank_fn *read;
    void             *ctx;
    float            *d;                /* some rows */
    int64_t           n_row;            /* rows of the matrix held at a time */
    float            *y, *z;            /* [m, cols], [n, cols] */
    double           *g, *v, *value;    /* [k, k], [k, k], [k] */
    double            whole;
};

/* -- small symmetric matrices ---------------------------------------------------------------- */

/* One Jacobi rotation that zeroes g[p][q]: rows and columns p and q of g, columns of v^T (stored
 * by rows). */
static void rotate(double *g, double *vt, int64_t k, int64_t p, int64_t q)
{
    double apq = g[p * k + q], theta, t, c, s;

    theta = (g[q * k + q] - g[p * k + p]) / (2 * apq);
    t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    c = 1 / sqrt(t * t + 1);
    s = t * c;
    for (int64_t i = 0; i < k; i++) {
        double x = g[i * k + p], y = g[i * k + q];

        g[i * k + p] = c * x - s * y;
        g[i * k + q] = s * x + c * y;
    }
    for (int64_t i = 0; i < k; i++) {
        double x = g[p * k + i], y = g[q * k + i];
        double vx = vt[p * k + i], vy = vt[q * k + i];

        g[p * k + i] = c * x - s * y;
        g[q * k + i] = s * x + c * y;
        vt[p * k + i] = c * vx - s * vy;
        vt[q * k + i] = s * vx + c * vy;
    }
    g[p * k + q] = g[q * k + p] = 0;
}

static void swap_rows(double *value, double *vt, int64_t k, int64_t a, int64_t b)
{
    double x = value[a];

    value[a] = value[b];
    value[b] = x;
    for (int64_t i = 0; a != b && i < k; i++) {
        x = vt[a * k + i];
        vt[a * k + i] = vt[b * k + i];
        vt[b * k + i] = x;
    }
}

void ckpt_low_rank_eigen(double *value, double *v, double *g, int64_t k)
{
    double size = 0;

    memset(v, 0, (size_t)(k * k) * sizeof *v);
    for (int64_t i = 0; i < k; i++) {
        v[i * k + i] = 1;
        size += fabs(g[i * k + i]);
    }
    for (int sweep = 0, rotated = 1; rotated && sweep < 30; sweep++) {
        rotated = 0;
        for (int64_t p = 0; p < k; p++)
            for (int64_t q = p + 1; q < k; q++) {
                double x = fabs(g[p * k + q]);

                if (x > 1e-16 * sqrt(fabs(g[p * k + p] * g[q * k + q])) && x > 1e-18 * size) {
                    rotate(g, v, k, p, q);
                    rotated = 1;
                }
            }
    }
    for (int64_t i = 0; i < k; i++)
        value[i] = g[i * k + i];
    for (int64_t i = 0; i < k; i++) {
        int64_t best = i;

        for (int64_t j = i + 1; j < k; j++)
            best = value[j] > value[best] ? j : best;
        swap_rows(value, v, k, i, best);
    }
    for (int64_t i = 0; i < k; i++)             /* v was kept transposed so far */
        for (int64_t j = 0; j < i; j++) {
            double x = v[i * k + j];

            v[i * k + j] = v[j * k + i];
            v[j * k + i] = x;
        }
}

/* -- products of lines of `cols` floats ------------------------------------------------------- */

typedef float lanes __attribute__((vector_size(LANES / 2 * sizeof(float))));

/*
 * sum[a] = sum over i < n of d[a * row + i * step] * z[i * cols], for a < ROWS: the inner loop of
 * both products.  Two vectors per row, all in registers.
 */
static inline __attribute__((always_inline)) void dot(float *restrict sum, const float *d,
                                                      int64_t row, int64_t step, const float *z,
                                                      int64_t cols, int64_t n, int64_t rows)
{
    lanes a0 = {0}, a1 = {0}, b0 = {0}, b1 = {0}, c0 = {0}, c1 = {0}, d0 = {0}, d1 = {0}, x, y;
    int64_t second = rows > 1 ? row : 0, third = rows > 2 ? 2 * row : 0;
    int64_t fourth = rows > 3 ? 3 * row : 0;        /* a row that is absent repeats the first */

    for (int64_t i = 0; i < n; i++) {
        const float *e = d + i * step;

        memcpy(&x, z + i * cols, sizeof x);
        memcpy(&y, z + i * cols + LANES / 2, sizeof y);
        a0 += e[0] * x;
        a1 += e[0] * y;
        b0 += e[second] * x;
        b1 += e[second] * y;
        c0 += e[third] * x;
        c1 += e[third] * y;
        d0 += e[fourth] * x;
        d1 += e[fourth] * y;
    }
    memcpy(sum, &a0, sizeof a0);
    memcpy(sum + LANES / 2, &a1, sizeof a1);
    memcpy(sum + LANES, &b0, sizeof b0);
    memcpy(sum + LANES + LANES / 2, &b1, sizeof b1);
    memcpy(sum + 2 * LANES, &c0, sizeof c0);
    memcpy(sum + 2 * LANES + LANES / 2, &c1, sizeof c1);
    memcpy(sum + 3 * LANES, &d0, sizeof d0);
    memcpy(sum + 3 * LANES + LANES / 2, &d1, sizeof d1);
}

/* y [rows, cols] = d [rows, n] @ z [n, cols]. */
HOT static void times(float *restrict y, const float *restrict d, const float *restrict z,
                      int64_t rows, int64_t n, int64_t cols)
{
    float sum[ROWS * LANES];

    for (int64_t i = 0; i < rows; i += ROWS) {
        int64_t last = rows - i < ROWS ? rows - i : ROWS;

        for (int64_t c = 0; c < cols; c += LANES) {
            dot(sum, d + i * n, n, 1, z + c, cols, n, last);
            for (int64_t a = 0; a < last; a++)
                memcpy(&y[(i + a) * cols + c], sum + a * LANES, LANES * sizeof *sum);
        }
    }
}

/* z [n, cols] += d [rows, n]^T @ y [rows, cols]. */
HOT static void add_rotated(float *restrict z, const float *restrict d, const float *restrict y,
                           int64_t rows, int64_t n, int64_t cols)
{
    float sum[ROWS * LANES];

    for (int64_t j = 0; j < n; j += ROWS) {
        int64_t last = n - j < ROWS ? n - j : ROWS;

        for (int64_t c = 0; c < cols; c += LANES) {
            dot(sum, d + j, 1, n, y + c, cols, rows, last);
            for (int64_t a = 0; a < last; a++)
                for (int b = 0; b < LANES; b++)
                    z[(j + a) * cols + c + b] += sum[a * LANES + b];
        }
    }
}

/* g [k, k] = y^T y of y [rows, cols], in f64. */
HOT static void gram(double *restrict g, const float *restrict y, int64_t rows, int64_t cols,
                     int64_t k)
{
    memset(g, 0, (size_t)(k * k) * sizeof *g);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t p = 0; p < k; p++) {
            double x = y[i * cols + p];

            for (int64_t q = 0; q <= p; q++)
                g[p * k + q] += x * y[i * cols + q];
        }
    for (int64_t p = 0; p < k; p++)
        for (int64_t q = 0; q < p; q++)
            g[q * k + p] = g[p * k + q];
}

/* Replace each row of y [rows, cols] by row @ v [k, k], with column p multiplied by scale[p]. */
static void turn_lines(float *y, int64_t rows, int64_t cols, int64_t k, const double *v,
                       const double *scale)
{
    double line[CKPT_LOW_RANK_MAX * 2];

    for (int64_t i = 0; i < rows; i++) {
        float *at = y + i * cols;

        memset(line, 0, (size_t)k * sizeof *line);
        for (int64_t p = 0; p < k; p++) {
            double x = at[p];

            for (int64_t q = 0; q < k; q++)
                line[q] += x * v[p * k + q];
        }
        for (int64_t q = 0; q < k; q++)
            at[q] = (float)(line[q] * scale[q]);
    }
}

/*
 * Orthonormalise the columns of y, the largest first; dependent columns become zeros.  Done
 * twice, since small columns may not be orthogonal after the first time.  value gets the squared
 * norms from before.
 */
static void orthonormalise(struct work *w, float *y, int64_t rows)
{
    double scale[CKPT_LOW_RANK_MAX * 2], first[CKPT_LOW_RANK_MAX * 2];

    for (int time = 0; time < 2; time++) {
        gram(w->g, y, rows, w->cols, w->k);
        ckpt_low_rank_eigen(w->value, w->v, w->g, w->k);
        for (int64_t p = 0; p < w->k; p++)
            scale[p] = w->value[p] > SMALLEST * w->value[0] ? 1 / sqrt(w->value[p]) : 0;
        turn_lines(y, rows, w->cols, w->k, w->v, scale);
        if (time == 0)
            memcpy(first, w->value, (size_t)w->k * sizeof *first);
    }
    memcpy(w->value, first, (size_t)w->k * sizeof *first);
}

/* -- passes over the matrix ------------------------------------------------------------------ */

enum pass { POWER, RIGHT, LEFT };

/* POWER: z = D^T D z0, y is scratch; RIGHT: y = D z; LEFT: z = D^T y. */
static int run_pass(struct work *w, enum pass pass, const float *z0, struct ckpt_err *err)
{
    int rc;

    if (pass != RIGHT)
        memset(w->z, 0, (size_t)(w->n * w->cols) * sizeof *w->z);
    w->whole = 0;
    for (int64_t row = 0; row < w->m; row += w->n_row) {
        int64_t rows = w->m - row < w->n_row ? w->m - row : w->n_row;
        float *y = w->y + row * w->cols;

        if ((rc = w->read(w->ctx, row, rows, w->d, err)) != 0)
            return rc;
        for (int64_t i = 0; i < rows * w->n; i++)
            w->whole += (double)w->d[i] * w->d[i];
        if (pass != LEFT)
            times(y, w->d, z0, rows, w->n, w->cols);
        if (pass != RIGHT)
            add_rotated(w->z, w->d, y, rows, w->n, w->cols);
    }
    return isfinite(w->whole) ? 0 : ckpt_fail(err, CKPT_EFORMAT, "infinite or no number");
}

/* Start with any values that are unrelated to the matrix: numbers in (-1, 1) from a counter. */
static void fill_start(float *z, int64_t n, int64_t cols, int64_t k)
{
    uint64_t state = 0x9e3779b97f4a7c15u;

    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < cols; p++) {
            uint64_t x = state += 0x9e3779b97f4a7c15u;

            x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
            x = (x ^ x >> 27) * 0x94d049bb133111ebu;
            z[i * cols + p] = p < k ? (float)(int32_t)(x >> 32) / 2147483648.0f : 0;
        }
}

/* Iterate until z spans the dominant right singular vectors. */
static int iterate(struct work *w, float *z0, struct ckpt_err *err)
{
    double before = 0;
    int rc;

    fill_start(z0, w->n, w->cols, w->k);
    for (int i = 0; i < MAX_PASSES; i++) {
        double sum = 0;

        if ((rc = run_pass(w, POWER, z0, err)) != 0)
            return rc;
        memcpy(z0, w->z, (size_t)(w->n * w->cols) * sizeof *z0);
        orthonormalise(w, z0, w->n);
        for (int64_t p = 0; p < w->r; p++)      /* the norms are squares of singular values */
            sum += sqrt(w->value[p] > 0 ? w->value[p] : 0);
        if (i > 0 && fabs(sum - before) <= STANDS * sum)
            return 0;
        before = sum;
    }
    return 0;
}

/* Unit columns, which span the whole space when it has at most k dimensions. */
static void fill_units(float *y, int64_t rows, int64_t cols)
{
    for (int64_t i = 0; i < rows; i++)
        y[i * cols + i] = 1;
}

/* y becomes an orthonormal basis of the dominant left singular vectors. */
static int find_span(struct work *w, float *z0, struct ckpt_err *err)
{
    int rc;

    if (w->k == w->m) {
        fill_units(w->y, w->m, w->cols);
        return 0;
    }
    if (w->k == w->n)
        fill_units(z0, w->n, w->cols);
    else if ((rc = iterate(w, z0, err)) != 0)
        return rc;
    if ((rc = run_pass(w, RIGHT, z0, err)) != 0)
        return rc;
    orthonormalise(w, w->y, w->m);
    return 0;
}

/* From y orthonormal and z = D^T y: singular vectors, with the square roots of their values in
 * both. */
static void finish(struct work *w, float *left, float *right, double *kept)
{
    double one[CKPT_LOW_RANK_MAX * 2], root[CKPT_LOW_RANK_MAX * 2];

    gram(w->g, w->z, w->n, w->cols, w->k);
    ckpt_low_rank_eigen(w->value, w->v, w->g, w->k);
    *kept = 0;
    for (int64_t p = 0; p < w->k; p++) {
        double square = w->value[p] > NOTHING * w->value[0] ? w->value[p] : 0;

        one[p] = sqrt(sqrt(square));
        root[p] = square > 0 ? 1 / one[p] : 0;
        *kept += p < w->r ? square : 0;
    }
    turn_lines(w->y, w->m, w->cols, w->k, w->v, one);
    turn_lines(w->z, w->n, w->cols, w->k, w->v, root);
    for (int64_t i = 0; i < w->m; i++)
        memcpy(left + i * w->r, w->y + i * w->cols, (size_t)w->r * sizeof *left);
    for (int64_t i = 0; i < w->n; i++)
        memcpy(right + i * w->r, w->z + i * w->cols, (size_t)w->r * sizeof *right);
}

static void release(struct work *w)
{
    ckpt_free(w->d);
    ckpt_free(w->y);
    ckpt_free(w->z);
    ckpt_free(w->g);
    ckpt_free(w->v);
    ckpt_free(w->value);
}

int ckpt_low_rank(float *left, float *right, double *whole, double *kept, int64_t m, int64_t n,
                  int64_t r, ckpt_low_rank_fn *read, void *ctx, struct ckpt_err *err)
{
    int64_t least = m < n ? m : n, k = r + r / 4 + 8;
    struct work w = {.m = m, .n = n, .r = r, .read = read, .ctx = ctx};
    float *z0;
    int rc;

    w.k = k < least ? k : least;
    w.cols = (w.k + LANES - 1) / LANES * LANES;
    w.n_row = BLOCK / n > ROWS ? BLOCK / n / ROWS * ROWS : ROWS;
    w.d = ckpt_alloc_buffer((size_t)(w.n_row * n) * sizeof *w.d);
    w.y = ckpt_alloc((size_t)(m * w.cols), sizeof *w.y);
    w.z = ckpt_alloc((size_t)(n * w.cols), sizeof *w.z);
    w.g = ckpt_alloc((size_t)(w.k * w.k), sizeof *w.g);
    w.v = ckpt_alloc((size_t)(w.k * w.k), sizeof *w.v);
    w.value = ckpt_alloc((size_t)w.k, sizeof *w.value);
    z0 = ckpt_alloc((size_t)(n * w.cols), sizeof *z0);
    rc = w.d && w.y && w.z && w.g && w.v && w.value && z0
             ? find_span(&w, z0, err) : ckpt_nomem(err, (size_t)((m + n) * w.cols) * sizeof *z0);
    if (rc == 0)
        rc = run_pass(&w, LEFT, NULL, err);
    if (rc == 0) {
        finish(&w, left, right, kept);
        *whole = w.whole;
    }
    ckpt_free(z0);
    release(&w);
    return rc;
}
