/*
 * linear - parts of a projection, shared by its plain form, LoRA and the experts: products, and
 * the elementwise kernels around them.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_LINEAR_H
#define CKPT_TRAINER_CUDA_MATMUL_LINEAR_H

#include "trainer/cuda/matmul/matmul.h"

static inline int64_t linear_out_ld(const struct op_linear *a)
{
    return a->out_ld ? a->out_ld : a->n_out;
}

/* Bytes of n values of the device's activations. */
static inline uint64_t linear_bytes(const struct device *dev, int64_t n)
{
    return (uint64_t)n * cuda_size(dev);
}

/* -- linear_parts.cu -------------------------------------------------------------------------- */

/* out[i, j] = drop(act(p[i, j] + bias[j])) + residual[i, j]; pre, if given, gets the argument
 * of act. Rows of out are ld apart, those of p p_ld (0: ld), the others dense. out may be p. */
struct linear_finish {
    void          *out, *pre;
    const void    *p, *bias, *residual;     /* NULL: none, but p */
    int64_t        n, width, ld, p_ld;
    enum op_act    act;
    struct op_drop drop;
};

void linear_finish(struct device *dev, const struct linear_finish *f);

/* x = drop(act(pre)); dx = drop(dx * act'(pre)); each if given.  All [n, width]. */
void linear_act_back(struct device *dev, enum op_act act, void *x, void *dx, const void *pre,
                     int64_t n, int64_t width, const struct op_drop *drop);

/* Bit j % 8 of byte j / 8 of row i: x[i, j] > 0.  width a multiple of 8, x aligned to 16 bytes. */
void linear_positive(struct device *dev, void *bits, const void *x, int64_t n, int64_t width);

/* to[i, j] = drop(x[i, j] * (gain[j] - less)) + add[i, j] + more[i, j]; rest, if given, gets x
 * minus the part that drop keeps (without a gain). x has ld (0: width) elements from row to row,
 * the others are dense. to may be x, add or more. */
struct linear_mix {
    void          *to, *rest;
    const void    *x, *add, *more;  /* add, more NULL: none */
    const float   *gain;            /* [width], NULL: by one */
    float          less;
    int64_t        n, width, ld;
    struct op_drop drop;
};

void linear_mix(struct device *dev, const struct linear_mix *m);

/* sum[j] = (with add: sum[j] +) sum over i of x[i, j]; rows of x are ld apart; part:
 * linear_sums_bytes. */
void linear_sums(struct device *dev, float *sum, const void *x, int64_t ld, int64_t n,
                 int64_t width, float *part, bool add);
uint64_t linear_sums_bytes(int64_t width);

/* -- linear.cu -------------------------------------------------------------------------------- */

/* The product x W^T (or x W) of a projection alone, to be completed with its epilogue. */
struct matmul_args linear_product(const struct device *dev, const struct op_linear *a,
                                  const void *x, void *to, int64_t ld);
/*
 * Forward without LoRA: p = x W^T + b + add, where add is [n, n_out] with rows add_ld apart
 * (NULL: none; may be p's memory), and everything after p.
 */
void linear_main(struct device *dev, const struct op_linear *a, const void *add, int64_t add_ld,
                 uint64_t busy);
/* All of forward with a further product of the same columns in one kernel; false: nothing was
 * queued. */
bool linear_fused(struct device *dev, const struct op_linear *a, const struct matmul_part *more,
                  uint64_t busy);
/* The same for dx, with n further products. */
bool linear_dx_fused(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
                     const struct matmul_part *more, int n, bool add, uint64_t busy);
/* Apply dropout to dout, into to[n, n_out]; returns to. */
const void *linear_dropped(struct device *dev, const struct op_linear *a, void *to);
/* dx from dy (rows ld apart), accumulated with add; x is recomputed along with it. */
void linear_dx(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld, bool add,
               uint64_t busy);
/* dw and db, where wanted; part: linear_sums_bytes. */
void linear_dw(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
               uint64_t busy);
void linear_db(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
               float *part);

#endif
