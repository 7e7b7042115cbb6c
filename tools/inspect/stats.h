/*
 * stats - moments and extremes of many values, computed block by block and joined in any
 * grouping.
 *
 * One pass over the values: differences from a nearby value, and their squares, are summed in
 * double, and blocks are joined by the rule of Chan, Golub and LeVeque (1979).  Large means cost
 * no precision, and the loop is vectorised and runs at memory speed.
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

/* Add all values of an array, of a dtype that converts to f64.  *s starts as zeros. */
void stats_add(struct stats *s, const void *values, enum ckpt_dtype dtype, size_t n);
/* Join other into s. */
void stats_join(struct stats *s, const struct stats *other);
/* Standard deviation of a sample: 0 below two values. */
double stats_std(const struct stats *s);

#endif
