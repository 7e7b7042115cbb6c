/*
 * histogram - how the numbers of a tensor are distributed, counted in one pass over them in any
 * order and in pieces.
 *
 * A bucket holds the float32 numbers whose sign, exponent and first three bits of the fraction are
 * alike: each is an eighth as wide as the power of two that it lies in.  TensorBoard's own are
 * 1.1 times wider than the last; what it draws is the same to the eye.
 */
#ifndef CKPT_FORMATS_LOGS_HISTOGRAM_H
#define CKPT_FORMATS_LOGS_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS 4096          /* 1 + 8 + 3 bits */

struct histogram {
    uint64_t n;                         /* finite numbers */
    uint64_t not_finite;
    double   min, max, sum, sum_squares;
    uint64_t bucket[HISTOGRAM_BUCKETS]; /* by the number's first twelve bits */
};

/* h is zeroed before the first call. */
void histogram_add(struct histogram *h, const float *v, size_t n);
/*
 * The buckets from the least number to the largest: count[i] numbers lie up to limit[i], and beyond
 * limit[i - 1].  Empty ones in a row are one.  Returns how many, HISTOGRAM_BUCKETS at most; 0 when
 * there is no number.
 */
size_t histogram_buckets(const struct histogram *h, double limit[HISTOGRAM_BUCKETS],
                         double count[HISTOGRAM_BUCKETS]);
/*
 * The same in n buckets of one width between min and max: edge[n + 1], count[n].  Numbers of one
 * bucket are taken to lie evenly in it.  The counts are whole and sum to h->n, which is not 0.
 */
void histogram_even(const struct histogram *h, double *edge, uint64_t *count, size_t n);

#endif
