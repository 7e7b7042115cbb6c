/*
 * linear - parts of a projection, shared by the plain form and the one with LoRA or dropout.
 */
#ifndef CKPT_TRAINER_CPU_LINEAR_H
#define CKPT_TRAINER_CPU_LINEAR_H

#include "trainer/cpu/cpu.h"

/* Least rows per thread for work to be split by rows. */
#define LINEAR_MIN_ROWS 16

static inline int64_t linear_out_ld(const struct op_linear *a)
{
    return a->out_ld ? a->out_ld : a->n_out;
}

/* to[m, n] (row stride ld) = columns [c0, c0 + n) of x W^T, + beta to. */
void linear_product(const struct device *dev, const struct op_linear *a, float *to, int64_t ld,
                    const float *x, int64_t c0, int64_t m, int64_t n, float beta);
/* dx[m, n] (row stride n_in) = columns [c0, c0 + n) of dout W, + beta dx; dout's stride is ld. */
void linear_product_back(const struct device *dev, const struct op_linear *a, float *dx,
                         const float *dout, int64_t ld, int64_t c0, int64_t m, int64_t n,
                         float beta);
/* Output columns [c0, c1) of dw and db, from dout (row stride ld). */
void linear_grads(const struct op_linear *a, const float *dout, int64_t ld, int64_t c0,
                  int64_t c1);

/* Destination of the product before the activation. */
static inline float *linear_to(const struct op_linear *a) { return a->pre ? a->pre : a->out; }
/* Before the product of rows [r0, r1), columns [c0, c1): prepare the output; true when the
 * product must be added to it.  linear_after completes it. */
bool linear_before(const struct op_linear *a, int64_t r0, int64_t r1, int64_t c0, int64_t c1);
void linear_after(const struct op_linear *a, int64_t r0, int64_t r1, int64_t c0, int64_t c1);
/* sum[j] += the columns of x[rows], j in [begin, end). */
void linear_add_columns(float *restrict sum, const float *restrict x, int64_t rows,
                        int64_t stride, int64_t begin, int64_t end);

/* linear_tiles.c: the same two operations with the CPU's bf16 products; false: not supported for
 * these arguments. */
bool tiles_linear_fwd(struct device *dev, const struct op_linear *a);
bool tiles_linear_bwd(struct device *dev, const struct op_linear *a);
/* Bytes of workspace for projections of n rows. */
uint64_t tiles_linear_work(const struct device *dev, int64_t n, int64_t n_in, int64_t n_out);

/* lora.c: the same two operations with LoRA or dropout. */
void lora_linear_fwd(struct device *dev, const struct op_linear *a);
void lora_linear_bwd(struct device *dev, const struct op_linear *a);

#endif
