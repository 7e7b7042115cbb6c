/*
 * gemm - OpenBLAS' products of row-major matrices, one-threaded: sizes have 64 bits, as
 * everywhere here (OpenBLAS takes 32: rows, columns and strides of one call must fit).
 *
 * The letters say how each factor is stored: n plain, t transposed.
 */
#ifndef CKPT_TRAINER_CPU_GEMM_H
#define CKPT_TRAINER_CPU_GEMM_H

#include <cblas.h>
#include <stdint.h>

/* y[m, n] = alpha x[m, k] w[n, k]^T + beta y; x_ld, w_ld, y_ld: from row to row. */
static inline void gemm_nt(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                           int64_t x_ld, const float *w, int64_t w_ld, float beta, float *y,
                           int64_t y_ld)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)m, (int)n, (int)k, alpha, x,
                (int)x_ld, w, (int)w_ld, beta, y, (int)y_ld);
}

/* y[m, n] = alpha x[m, k] w[k, n] + beta y */
static inline void gemm_nn(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                           int64_t x_ld, const float *w, int64_t w_ld, float beta, float *y,
                           int64_t y_ld)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, x,
                (int)x_ld, w, (int)w_ld, beta, y, (int)y_ld);
}

/* y[m, n] = alpha x[k, m]^T w[k, n] + beta y */
static inline void gemm_tn(int64_t m, int64_t n, int64_t k, float alpha, const float *x,
                           int64_t x_ld, const float *w, int64_t w_ld, float beta, float *y,
                           int64_t y_ld)
{
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)m, (int)n, (int)k, alpha, x,
                (int)x_ld, w, (int)w_ld, beta, y, (int)y_ld);
}

#endif
