/*
 * lora - the products of LoRA, shared by one projection and several at once.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_LORA_H
#define CKPT_TRAINER_CUDA_MATMUL_LORA_H

#include "trainer/cuda/matmul/linear.h"

/* The workspace of one call; NULL: not needed. */
struct lora_space {
    unsigned char *t, *dt;          /* [n, r8] */
    unsigned char *xd, *xr;         /* [n, n_in]: x after dropout; x - xd, or the gradient
                                       through LoRA; backward: of what is added to dx */
    unsigned char *z, *dz;          /* [n, n_out]: the adapted product, before a magnitude or
                                       a residual; its gradient, with a magnitude */
    float         *gain, *inv;      /* [n_out]: magnitude / length of the row; 1 / length */
    float         *wa, *aa;         /* [n_out, r], [r, r]: W A^T, A A^T */
    unsigned char *dy;              /* [n, n_out]: dout after dropout */
    float         *part;            /* linear_sums_bytes */
    int64_t        r8;              /* elements from row to row of t and dt */
    uint64_t       busy;
};

/* to = t B^T, with ld elements from row to row. */
void lora_up(struct device *dev, const struct op_linear *a, const struct lora_space *s,
             void *to, int64_t ld);
/* t B^T, and dt A, as parts of a product. */
struct matmul_part lora_part(const struct op_linear *a, const struct lora_space *s);
struct matmul_part lora_part_back(const struct op_linear *a, const struct lora_space *s);
/* dt = scale * dz B */
void lora_down_bwd(struct device *dev, const struct op_linear *a, const struct lora_space *s,
                   const void *dz, int64_t ld);
/* to[m, n] += x[rows, m]^T y[rows, n], in f32 */
void lora_add_outer(struct device *dev, const struct lora_space *s, void *to, const void *x,
                    int64_t x_ld, const void *y, int64_t y_ld, int64_t rows, int64_t m,
                    int64_t n);

/* lora_many.cu: bytes after MATMUL_WORK, without the workspace of sums. */
uint64_t lora_many_bytes(const struct device *dev, int64_t n, int64_t in, int64_t rank,
                         bool back);

/* lora.cu: the operations, of projections with an adapter. */
void lora_linear_fwd(struct device *dev, const struct op_linear *a);
void lora_linear_bwd(struct device *dev, const struct op_linear *a);
/* Bytes after MATMUL_WORK, without dy and the workspace of sums. */
uint64_t lora_linear_bytes(const struct device *dev, const struct op_limits *l, int64_t in,
                           int64_t out);

#endif
