/*
 * lora/product - a product of two low-rank factors, added to a range of a matrix.
 *
 * An element's sum goes over the rank in order, from +0, each product and each sum rounded to
 * f32, without fused multiply-adds; every NaN becomes one and the same.  So the bits
 * of an element depend neither on the range it is asked for in, nor on the machine.
 *
 * The lines (A [r, n_col]) are kept in panels of LORA_PANEL columns, [n_panel, r, LORA_PANEL], so
 * that a panel stays in the nearest cache while all rows of a block pass it, and no two of its
 * lines lie a power of two apart.
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
    const float *panel;         /* of lora_panels */
    const float *coef;          /* [n_row, r] */
    float        scale;
    const float *stretch;       /* of each row, or column, afterwards; NULL: none */
    bool         by_column;     /* which of the two */
};

/* line [r, n_col] as panels, the last one filled up with zeros; the caller frees *out. */
int lora_panels(float **out, const float *line, int64_t r, int64_t n_col, struct ckpt_err *err);

/* w, elements [start, start + n) of W: w += scale * (coef @ line), then stretched. */
void lora_add_product(float *w, const struct lora_product *p, int64_t start, int64_t n);

#endif
