/*
 * typed - products of weights of the device's type (f32, bf16, f16) with f32 factors.
 *
 * 16-bit weights stay 16-bit in memory.  A product over many rows widens a panel of the matrix
 * into the calling thread's part of the reserve (the end of the workspace) and multiplies that;
 * one over few rows reads the 16-bit numbers directly, since it is limited by memory bandwidth.
 * Sums are f32.
 */
#ifndef CKPT_TRAINER_CPU_TYPED_H
#define CKPT_TRAINER_CPU_TYPED_H

#include "trainer/cpu/cpu.h"

/* Element i of an array of weights. */
static inline const void *typed_at(const struct device *dev, const void *w, int64_t i)
{
    return (const unsigned char *)w + (size_t)i * ckpt_dtype_size(dev->weight);
}

/* y[m, n] = alpha x[m, k] W^T + beta y, W stored [n, k] with rows ld apart. */
void typed_nt(const struct device *dev, int64_t m, int64_t n, int64_t k, float alpha,
              const float *x, int64_t x_ld, const void *w, int64_t ld, float beta, float *y,
              int64_t y_ld);
/* y[m, n] = alpha x[m, k] W + beta y, W stored [k, n] with rows ld apart. */
void typed_nn(const struct device *dev, int64_t m, int64_t n, int64_t k, float alpha,
              const float *x, int64_t x_ld, const void *w, int64_t ld, float beta, float *y,
              int64_t y_ld);
/* dst[n] = the weights as f32. */
void typed_wide(const struct device *dev, float *dst, const void *w, int64_t n);
/*
 * A vector of weights as f32: the weights themselves, or widened into one of the reserve's
 * TYPED_VECTORS places, where the copy stays until that place is requested again.  Outside
 * parallel regions.
 */
#define TYPED_VECTORS 3
const float *typed_vector(struct device *dev, int place, const void *w, int64_t n);

/* The calling thread's panel: TYPED_PANEL floats, which products with 16-bit weights overwrite. */
#define TYPED_PANEL ((int64_t)1 << 20)
float *typed_panel(const struct device *dev);

/* Bytes of the reserve; 0 when weights are f32. */
uint64_t typed_reserve(const struct device *dev);

#endif
