/*
 * reduce - sums over whole arrays.
 *
 * The array is cut into SLOTS pieces whatever the number of threads, each summed in f64, and
 * the pieces are added in their order: the same bits for any number of threads.
 */
#include "trainer/cpu/cpu.h"

#define SLOTS 64

CPU_HOT static double squares(const float *x, int64_t n)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

void cpu_sum_squares(struct device *dev, double *sum, const float *grad, int64_t n)
{
    double part[SLOTS];

    *sum = 0;
    if (dev->err.code)
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * n))
    for (int i = 0; i < SLOTS; i++) {
        int64_t begin, end;

        cpu_range(&begin, &end, n, 16, i, SLOTS);
        part[i] = squares(grad + begin, end - begin);
    }
    for (int i = 0; i < SLOTS; i++)
        *sum += part[i];
}

void cpu_add(struct device *dev, enum op_stream stream, float *dst, const float *src, int64_t n)
{
    (void)stream;
    if (dev->err.code)
        return;
#pragma omp parallel for simd schedule(static) num_threads(cpu_threads(dev, n))
    for (int64_t i = 0; i < n; i++)
        dst[i] += src[i];
}
