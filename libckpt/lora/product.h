/*
 * lora/product - a product of two low-rank factors, added to a range of a matrix.
 *
 * An element is summed over the rank in order, from +0, each product and each sum rounded to f32,
 * without fused multiply-adds; all NaNs become the same NaN.  So the bits of an element depend
 * neither on the range that is read nor on the machine.
 *
 * A [r, n_col] is stored in panels of LORA_PANEL columns, [n_panel, r, LORA_PANEL], so that a
 * panel stays in the L1 cache while all rows of a block use it, and no two of its rows lie a
 * power of two apart.
 */
#ifndef CKPT_LIBCKPT_LORA_PRODUCT_H
#define CKPT_LIBCKPT_LORA_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

#define LORA_PANEL 16

struct lora_product {
    int64_t      n_col, r;
    const float *panel;         /* from lora_panels */
    const float *coef;          /* [n_row, r] */
    float        scale;
    const float *stretch;       /* DoRA: factor of each row or column at the end; NULL: none */
    bool         by_column;     /* stretch is by column, not by row */
};

/* Pack line [r, n_col] into panels, the last one zero-padded; the caller frees *out. */
int lora_panels(float **out, const float *line, int64_t r, int64_t n_col, struct ckpt_err *err);

/* w, elements [start, start + n) of W: w += scale * (coef @ line), then multiplied by stretch. */
void lora_add_product(float *w, const struct lora_product *p, int64_t start, int64_t n);

/* Bits of the largest absolute value of w[n]; those of NaN are above those of infinity. */
int32_t lora_largest(const float *w, int64_t n);

#endif
