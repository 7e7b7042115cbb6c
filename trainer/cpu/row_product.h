/*
 * row_product - products whose rows do not depend on each other: a row of the result has the same
 * bits whatever other rows are multiplied with it, and however the columns are cut.
 *
 * OpenBLAS chooses kernels by the number of rows, whose sums differ in their last bits; a
 * generated sequence would then depend, at a near tie, on what else is in its batch.  Here an
 * element's sum has one order, in any tile: along W's rows LANES partial sums, added pairwise;
 * else one sum from the first term to the last.
 */
#ifndef CKPT_TRAINER_CPU_ROW_PRODUCT_H
#define CKPT_TRAINER_CPU_ROW_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

/* y[m, n] = x[m, k] W^T, + y with add; W [n, k]. */
void row_product_nt(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                    const float *w, int64_t ld, bool add, float *y, int64_t y_ld);
/* y[m, n] = x[m, k] W, + y with add; W [k, n]. */
void row_product_nn(int64_t m, int64_t n, int64_t k, const float *x, int64_t x_ld,
                    const float *w, int64_t ld, bool add, float *y, int64_t y_ld);
/* y[n] = scale x[k] W; W [k, n].  One row alone, in an order of its own. */
void row_product_sum(int64_t n, int64_t k, const float *x, const float *w, int64_t ld, float scale,
                     float *y);

#endif
