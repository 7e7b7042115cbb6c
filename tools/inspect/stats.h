/*
 * stats - moments and extremes of many values, block by block, joined in any grouping.
 *
 * Values go through once: differences from a value near them are summed with their squares, in
 * double, and blocks are joined by the rule of Chan, Golub and LeVeque (1979).  Nothing is lost
 * to large means, and the loop is vector code at the speed of memory.
 */
#ifndef CKPT_TOOLS_INSPECT_STATS_H
#define CKPT_TOOLS_INSPECT_STATS_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"

struct stats {
    int64_t n, n_nan, n_inf, n_zero;    /* n: finite values */
    double  mean, m2;                   /* m2: sum of squared differences from the mean */
    double  min, max;
};

/* All values of an array, of a dtype that converts to f64.  *s starts as zeros. */
void stats_add(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n);
/* s becomes what s and other were together. */
void stats_join(struct stats *s, const struct stats *other);
/* Deviation of a sample: 0 below two values. */
double stats_std(const struct stats *s);

#endif
