/*
 * low_rank - the best low-rank approximation (truncated SVD) of a matrix that is read by rows and
 * never held in memory.
 *
 * Subspace iteration from a fixed start (Halko, Martinsson, Tropp 2011, algorithm 4.4), until the
 * singular values converge; a matrix of at most that rank is reproduced to f32's last digits.
 * Memory is about (m + n) * r floats.  The result has the same bits on every machine: products in
 * f32 in a fixed order, without fused multiply-adds; small symmetric problems in f64.
 */
#ifndef CKPT_LIBCKPT_LORA_LOW_RANK_H
#define CKPT_LIBCKPT_LORA_LOW_RANK_H

#include <stdint.h>

#include "libckpt/fail.h"

#define CKPT_LOW_RANK_MAX 1024

/* Read rows [row, row + n) of the matrix, n times its columns floats. */
typedef int ckpt_low_rank_fn(void *ctx, int64_t row, int64_t n, float *d, struct ckpt_err *err);

/*
 * Of a matrix [m, n]: left [m, r] and right [n, r] so that left @ right^T is nearest to it; both
 * have the singular values' square roots in their columns, largest first.  r is at most
 * CKPT_LOW_RANK_MAX, m and n.  whole: the sum of the matrix's squared elements; kept: the part of
 * it that left @ right^T retains.
 */
int ckpt_low_rank(float *left, float *right, double *whole, double *kept, int64_t m, int64_t n,
                  int64_t r, ckpt_low_rank_fn *read, void *ctx, struct ckpt_err *err);

/* Eigenvalues, largest first, and eigenvectors (columns of v) of symmetric g [k, k]; g is
 * overwritten. */
void ckpt_low_rank_eigen(double *value, double *v, double *g, int64_t k);

#endif
