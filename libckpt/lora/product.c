/* lora/product - see lora/product.h. */
#include "libckpt/lora/product.h"

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

#define ROWS 4                  /* rows of a tile: with 16 columns its sums fit in registers */
#define DEEP ((int64_t)16384)   /* floats of panels that a block of rows is multiplied with at a
                                   time */

typedef float lanes __attribute__((vector_size(32), aligned(4), may_alias));

int lora_panels(float **out, const float *line, int64_t r, int64_t n_col, struct ckpt_err *err)
{
    int64_t n_panel = (n_col + LORA_PANEL - 1) / LORA_PANEL;
    size_t n = (size_t)(n_panel * r * LORA_PANEL);
    float *panel = ckpt_alloc_buffer(n * sizeof *panel);

    *out = panel;
    if (!panel)
        return ckpt_nomem(err, n * sizeof *panel);
    for (int64_t k = 0; k < n_panel; k++) {
        int64_t first = k * LORA_PANEL;
        size_t cols = (size_t)(n_col - first < LORA_PANEL ? n_col - first : LORA_PANEL);

        for (int64_t i = 0; i < r; i++, panel += LORA_PANEL) {
            memset(panel, 0, LORA_PANEL * sizeof *panel);
            memcpy(panel, line + i * n_col + first, cols * sizeof *panel);
        }
    }
    return 0;
}

/* sum [ROWS][LORA_PANEL]: ROWS rows of coefficients times one panel. */
static inline __attribute__((always_inline)) void
sum_tile(float *restrict sum, const float *restrict panel, const float *const c[ROWS], int64_t r)
{
    lanes s[ROWS][2] = {0};

    for (int64_t i = 0; i < r; i++) {
        const lanes *l = (const lanes *)(panel + i * LORA_PANEL);
        lanes l0 = l[0], l1 = l[1];

#pragma GCC unroll 4
        for (int m = 0; m < ROWS; m++) {
            float k = c[m][i];

            s[m][0] += k * l0;
            s[m][1] += k * l1;
        }
    }
    memcpy(sum, s, sizeof s);
}

/* Replace all NaNs by one: which operand's NaN an addition passes on is up to the compiler. */
static inline __attribute__((always_inline)) float one_nan(float v) { return v == v ? v : NAN; }

static inline __attribute__((always_inline)) void
add_tile(float *restrict w, const float *restrict sum, float scale, int64_t n)
{
    if (n == LORA_PANEL)
        for (int j = 0; j < LORA_PANEL; j++)
            w[j] = one_nan(w[j] + scale * sum[j]);
    else
        for (int64_t j = 0; j < n; j++)
            w[j] = one_nan(w[j] + scale * sum[j]);
}

/* Update columns [lo, hi) of the rows of W from `row` on; w points to the first, `step` apart. */
HOT static void add_rows(float *restrict w, int64_t step, const struct lora_product *p,
                         int64_t row, int64_t n_row, int64_t lo, int64_t hi)
{
    int64_t of = DEEP / (p->r * LORA_PANEL) * LORA_PANEL, at = lo, end;

    for (of = of > 0 ? of : LORA_PANEL; at < hi; at = end) {
        end = (at / LORA_PANEL * LORA_PANEL) + of;
        end = end < hi ? end : hi;
        for (int64_t i = 0; i < n_row; i += ROWS) {
            int64_t rows = n_row - i < ROWS ? n_row - i : ROWS;
            const float *c[ROWS];

            for (int64_t m = 0; m < ROWS; m++)
                c[m] = p->coef + (row + i + (m < rows ? m : 0)) * p->r;
            for (int64_t col = at, next; col < end; col = next) {
                int64_t panel = col / LORA_PANEL, skip = col - panel * LORA_PANEL;
                float sum[ROWS][LORA_PANEL];

                next = (panel + 1) * LORA_PANEL < end ? (panel + 1) * LORA_PANEL : end;
                sum_tile(sum[0], p->panel + panel * LORA_PANEL * p->r, c, p->r);
                for (int64_t m = 0; m < rows; m++)
                    add_tile(w + (i + m) * step + (col - lo), sum[m] + skip, p->scale,
                             next - col);
            }
        }
    }
}

static void stretch(float *w, const struct lora_product *p, int64_t start, int64_t n)
{
    int64_t row = start / p->n_col, col = start % p->n_col;

    for (int64_t j = 0; j < n; j++) {
        w[j] = one_nan(w[j] * p->stretch[p->by_column ? col : row]);
        if (++col == p->n_col) {
            col = 0;
            row++;
        }
    }
}

void lora_add_product(float *w, const struct lora_product *p, int64_t start, int64_t n)
{
    for (int64_t at = 0, k; at < n; at += k) {
        int64_t row = (start + at) / p->n_col, col = (start + at) % p->n_col;
        int64_t left = n - at, rows = col == 0 ? left / p->n_col : 0;

        if (rows > 0) {
            k = rows * p->n_col;
            add_rows(w + at, p->n_col, p, row, rows, 0, p->n_col);
        } else {
            k = p->n_col - col < left ? p->n_col - col : left;
            add_rows(w + at, p->n_col, p, row, 1, col, col + k);
        }
    }
    if (p->stretch)
        stretch(w, p, start, n);
}

HOT static int32_t largest(const float *w, int64_t n)
{
    int32_t most = 0;

    for (int64_t j = 0; j < n; j++) {
        int32_t bits;

        memcpy(&bits, &w[j], sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

int32_t lora_largest(const float *w, int64_t n) { return largest(w, n); }
