/*
 * linear - the parts of a projection that its plain form and the one with a low-rank change or
 * dropout share.
 */
#ifndef CKPT_CPU_LINEAR_H
#define CKPT_CPU_LINEAR_H

#include "trainer/cpu/cpu.h"

/* Rows a thread should have at least before work is split by rows. */
#define LINEAR_MIN_ROWS 16

static inline int64_t linear_out_ld(const struct op_linear *a)
{
    return a->out_ld ? a->out_ld : a->n_out;
}

/* to[m, n] (row stride ld) = columns [c0, c0 + n) of x W^T, + beta to. */
void linear_product(const struct device *dev, const struct op_linear *a, float *to, int64_t ld,
                    const float *x, int64_t c0, int64_t m, int64_t n, float beta);
/* dx[m, n_in] = dout W, + beta dx; dout's row stride is ld. */
void linear_product_back(const struct device *dev, const struct op_linear *a, float *dx,
                         const float *dout, int64_t ld, int64_t m, float beta);
/* Output columns [c0, c1) of dw and db, from dout (row stride ld). */
void linear_grads(const struct op_linear *a, const float *dout, int64_t ld, int64_t c0,
                  int64_t c1);

/* lora.c: the same two operations with a change or dropout. */
void lora_linear_fwd(struct device *dev, const struct op_linear *a);
void lora_linear_bwd(struct device *dev, const struct op_linear *a);

#endif
