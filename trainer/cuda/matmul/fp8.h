/*
 * fp8 - 8-bit factors for the products of projections.
 *
 * A factor is rounded with one scale for all its elements, computed from the largest of them just
 * before: so a resumed run continues with the same bits. (A scale from earlier steps would save
 * reading the factor once more, but would be state to save.) The scale is a power of two: it
 * costs no bit of the significand, and rounding is the same in every layout.  An infinity or a
 * NaN makes the scale NaN, and with it the whole product.
 *
 * cuBLASLt multiplies 8-bit factors only where the summed index is innermost in both: others are
 * transposed while they are rounded, and rows are padded with zeros to 16.
 *
 * Memory: factors of one operation are at the end of the workspace; weights stay in
 * dev->fp8_cache, in both layouts, while there is space.
 *
 * Source: NVIDIA Transformer Engine 2, recipe Float8CurrentScaling; pytorch/ao 0.14, float8
 * tensorwise scaling; NVIDIA cuBLAS 13.0, cublasLtMatmul, "FP8 kernels".
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_FP8_H
#define CKPT_TRAINER_CUDA_MATMUL_FP8_H

#include "trainer/cuda/matmul/matmul.h"

/* False: the device is marked.  Without dev->fp8: nothing. */
bool fp8_open(struct cuda_device *d);
void fp8_close(struct cuda_device *d);

/* Bytes at the end of the workspace, for projections between these widths. */
uint64_t fp8_work(const struct device *dev, const struct op_limits *l, int64_t in, int64_t out);

/*
 * p is the product of a projection, complete but for its epilogue: forward, for dx from dy (rows
 * ld apart), or for dw.  Its factors become 8-bit where that is requested, possible and faster;
 * else p is unchanged.  Backward calls dx first, then dw.
 */
void fp8_fwd(struct device *dev, const struct op_linear *a, struct matmul_args *p);
void fp8_dx(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
            struct matmul_args *p);
void fp8_dw(struct device *dev, const struct op_linear *a, const void *dy, int64_t ld,
            struct matmul_args *p);

/* -- fp8_cast.cu ------------------------------------------------------------------------------ */

enum { FP8_PARTS = 1056 };              /* blocks that search for the largest element */

/* A scale on the device: the factor, and its inverse. cuBLASLt requires scales at multiples of
 * 16 bytes. */
struct fp8_scale {
    alignas(16) float by;
    alignas(16) float back;
};

/* A matrix of bf16 and its destinations; rows of x are ld apart. */
struct fp8_cast {
    const void       *x;
    int64_t           rows, cols, ld;   /* cols: a multiple of 16 */
    unsigned char    *plain;            /* [rows, cols], or NULL */
    unsigned char    *transposed;       /* [cols, rows filled up to 16], or NULL */
    struct fp8_scale *scale;
    bool              e5m2;             /* else e4m3 */
};

/* parts: [FP8_PARTS + 1] on the device; the last element is 0 before and after. */
void fp8_cast(struct device *dev, const char *op, const struct fp8_cast *c, uint32_t *parts);

#endif
