/* lora_product: the bits of the definition, for any shape and any range. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#include "libckpt/lora/product.h"
#include "libckpt/mem.h"

/* Small numbers of either sign, and now and then what is none. */
static float some(uint64_t *state)
{
    uint64_t u = *state = *state * 6364136223846793005u + 1442695040888963407u;

    return u >> 52 == 7 ? NAN : u >> 52 == 9 ? -NAN : u >> 52 == 11 ? INFINITY
           : (float)((int32_t)(u >> 32) % 100000) / 4096.0f;
}

static float *many(size_t n, uint64_t *state)
{
    float *f = malloc(n * sizeof *f);

    for (size_t i = 0; i < n; i++)
        f[i] = some(state);
    return f;
}

/* The definition, element by element; no contraction: volatile keeps each rounding. */
static float defined(float w, const struct lora_product *p, const float *line, int64_t at)
{
    int64_t row = at / p->n_col, col = at % p->n_col;
    volatile float sum = 0, product;

    for (int64_t i = 0; i < p->r; i++) {
        product = p->coef[row * p->r + i] * line[i * p->n_col + col];
        sum = sum + product;
    }
    product = p->scale * sum;
    sum = w + product;
    if (p->stretch)
        sum = sum * p->stretch[p->by_column ? col : row];
    return isnan(sum) ? NAN : sum;
}

static void check(int64_t n_row, int64_t n_col, int64_t r, int lengths, uint64_t *state)
{
    size_t n = (size_t)(n_row * n_col), differ = 0;
    float *line = many((size_t)(r * n_col), state), *coef = many((size_t)(n_row * r), state);
    float *w = many(n, state), *stretch = many(n, state), *found = malloc(n * sizeof *found);
    struct lora_product p = {.n_col = n_col, .r = r, .coef = coef, .scale = 0.375f,
                             .stretch = lengths ? stretch : NULL, .by_column = lengths == 2};
    struct ckpt_err err = {0};
    float *panel;

    assert_int_equal(lora_panels(&panel, line, r, n_col, &err), 0);
    p.panel = panel;
    for (int64_t step = 1; step < 3 * (int64_t)n; step = step * 5 + 2) {
        memcpy(found, w, n * sizeof *w);
        for (int64_t at = 0; at < (int64_t)n; at += step)
            lora_add_product(found + at, &p, at, (int64_t)n - at < step ? (int64_t)n - at : step);
        for (size_t i = 0; i < n; i++) {
            float want = defined(w[i], &p, line, (int64_t)i);

            differ += memcmp(&want, &found[i], sizeof want) != 0;
        }
        if (differ)
            fail_msg("%lld x %lld, rank %lld, ranges of %lld: %zu differ", (long long)n_row,
                     (long long)n_col, (long long)r, (long long)step, differ);
    }
    ckpt_free(panel);
    free(line);
    free(coef);
    free(w);
    free(stretch);
    free(found);
}

TEST(every_range_has_the_bits_of_the_definition)
{
    static const int64_t shape[][3] = {{1, 1, 1},   {9, 5, 3},    {4, 16, 8},  {7, 33, 32},
                                       {12, 64, 5}, {3, 1100, 17}, {5, 300, 64}, {2, 2500, 70}};
    uint64_t state = 3;

    for (size_t i = 0; i < sizeof shape / sizeof shape[0]; i++)
        for (int lengths = 0; lengths < 3; lengths++)
            check(shape[i][0], shape[i][1], shape[i][2], lengths, &state);
}
