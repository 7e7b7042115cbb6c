/* attention_rows - see attention_rows.h. */
#include "trainer/cpu/attention_rows.h"

#include <math.h>

#include "trainer/cpu/cpu.h"
#include "trainer/cpu/vmath.h"

CPU_HOT void row_add(float *restrict x, const float *restrict y, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] += y[j];
}

CPU_HOT float row_soften(float *s, int64_t n, int64_t j0, int64_t i, float slope, float *max)
{
    float at = (float)(j0 - i), m = -INFINITY, sum = 0;

#pragma omp simd reduction(max : m)
    for (int64_t j = 0; j < n; j++) {
        float v = s[j] + slope * (at + (float)(int32_t)j);

        s[j] = v;
        m = v > m ? v : m;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++) {
        float e = cpu_exp(s[j] - m);

        s[j] = e;
        sum += e;
    }
    *max = m;
    return sum;
}

CPU_HOT void row_soften_back(float *restrict s, float *restrict dp, int64_t n, int64_t j0,
                             int64_t i, float slope, float lse, float delta)
{
    float at = (float)(j0 - i);

#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float p = cpu_exp(s[j] + slope * (at + (float)(int32_t)j) - lse);

        s[j] = p;
        dp[j] = p * (dp[j] - delta);
    }
}

CPU_HOT float row_dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += a[j] * b[j];
    return sum;
}

CPU_HOT void row_scale(float *x, int64_t n, float by)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] *= by;
}
