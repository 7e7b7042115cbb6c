/* histogram - see histogram.h. */
#include "formats/logs/histogram.h"

#include <math.h>
#include <string.h>

#define SHIFT    20                     /* bits of a float32 below those of its bucket */
#define NEGATIVE (HISTOGRAM_BUCKETS / 2)
#define FINITE   (NEGATIVE - 8)         /* buckets of one sign below those of the last exponent */

void histogram_add(struct histogram *h, const float *v, size_t n)
{
    double sum = 0, squares = 0, least = h->n ? h->min : INFINITY, most = h->n ? h->max : -INFINITY;
    uint64_t finite = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        double x = (double)v[i];

        memcpy(&bits, &v[i], sizeof bits);
        if ((bits >> SHIFT & (NEGATIVE - 1)) >= FINITE) {
            h->not_finite++;
            continue;
        }
        h->bucket[bits >> SHIFT]++;
        finite++;
        sum += x;
        squares += x * x;
        least = x < least ? x : least;
        most = x > most ? x : most;
    }
    if (finite == 0)
        return;
    h->n += finite;
    h->sum += sum;
    h->sum_squares += squares;
    h->min = least;
    h->max = most;
}

/* The number that begins a bucket of positive ones. */
static double begin_of(uint32_t i)
{
    uint32_t bits = i << SHIFT;
    float v;

    memcpy(&v, &bits, sizeof v);
    return (double)v;
}

/* Buckets in ascending order of their numbers: negative ones from the last, then the positive. */
static uint32_t by_value(uint32_t i)
{
    return i < FINITE ? NEGATIVE + FINITE - 1 - i : i - FINITE;
}

/* The largest number of the i-th bucket in that order. */
static double end_of(uint32_t i)
{
    return i < FINITE ? -begin_of(FINITE - 1 - i) : i - FINITE + 1 < FINITE
               ? begin_of(i - FINITE + 1) : 3.4028234663852886e38;
}

size_t histogram_buckets(const struct histogram *h, double limit[HISTOGRAM_BUCKETS],
                         double count[HISTOGRAM_BUCKETS])
{
    uint32_t first = 0, last = 2 * FINITE - 1;
    size_t n = 0;

    if (h->n == 0)
        return 0;
    while (h->bucket[by_value(first)] == 0)
        first++;
    while (h->bucket[by_value(last)] == 0)
        last--;
    for (uint32_t i = first; i <= last; i++) {
        double here = (double)h->bucket[by_value(i)];

        if (here > 0 || n == 0 || count[n - 1] > 0)
            count[n++] = here;
        limit[n - 1] = end_of(i);       /* empty buckets in a row are one */
    }
    return n;
}

/* How many numbers lie below x, by their buckets. */
static double below(const struct histogram *h, const double *limit, const double *count, size_t k,
                    double x)
{
    double sum = 0, from = h->min;

    for (size_t i = 0; i < k; i++) {
        double to = i + 1 < k ? limit[i] : h->max;

        if (x < to)
            return x > from && to > from ? sum + count[i] * (x - from) / (to - from) : sum;
        sum += count[i];
        from = to;
    }
    return sum;
}

void histogram_even(const struct histogram *h, double *edge, uint64_t *count, size_t n)
{
    double limit[HISTOGRAM_BUCKETS], in[HISTOGRAM_BUCKETS];
    size_t k = histogram_buckets(h, limit, in);
    /* One value alone: buckets around it, as numpy's are. */
    double least = h->max > h->min ? h->min : h->min - 0.5,
           width = h->max > h->min ? (h->max - h->min) / (double)n : 1.0 / (double)n;
    uint64_t before = 0;

    for (size_t i = 0; i <= n; i++)
        edge[i] = i < n ? least + width * (double)i : least + width * (double)n;
    for (size_t i = 0; i < n; i++) {
        uint64_t up = i + 1 == n ? h->n : (uint64_t)(below(h, limit, in, k, edge[i + 1]) + 0.5);

        up = up < before ? before : up > h->n ? h->n : up;
        count[i] = up - before;
        before = up;
    }
}
