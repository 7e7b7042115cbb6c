/* attention_rows - the softmax of one row of scores, forward and backward. */
#ifndef CKPT_TRAINER_CPU_ATTENTION_ROWS_H
#define CKPT_TRAINER_CPU_ATTENTION_ROWS_H

#include <stdint.h>

/*
 * Scores s[0, n) of one query (keys j0 ...; the query's own index is i) become exp(s - max), with
 * the position term added first; returns their sum.
 */
float row_soften(float *s, int64_t n, int64_t j0, int64_t i, float slope, float *max);
/* s becomes P = exp(s - lse), dp becomes P (dp - delta). */
void row_soften_back(float *restrict s, float *restrict dp, int64_t n, int64_t j0, int64_t i,
                     float slope, float lse, float delta);
void row_add(float *restrict x, const float *restrict y, int64_t n);
float row_dot(const float *restrict a, const float *restrict b, int64_t n);
void row_scale(float *x, int64_t n, float by);

#endif
