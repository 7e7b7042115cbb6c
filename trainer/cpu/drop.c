/* drop - see drop.h.  A block of columns at a time: words first, then the product. */
#include "trainer/cpu/drop.h"

#include "trainer/cpu/cpu.h"
#include "trainer/philox.h"

#define BLOCK 64                /* counters of one visit: 256 columns, 1 KiB on the stack */

CPU_HOT static void words(uint32_t *restrict to, uint64_t seed, uint64_t stream, uint64_t at,
                          int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        philox(to + 4 * i, seed, stream, at + (uint64_t)i);
}

CPU_HOT static void apply(float *out, const float *in, const uint32_t *restrict w,
                          uint32_t least, float scale, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        out[j] = w[j] >= least ? in[j] * scale : 0.0f;
}

void cpu_drop_rows(float *out, int64_t out_ld, const float *in, int64_t in_ld,
                   const struct op_drop *d, int64_t r0, int64_t r1, int64_t width)
{
    uint32_t w[4 * BLOCK], least = d->p >= 1.0f ? UINT32_MAX : (uint32_t)((double)d->p * 0x1p32);
    float scale = d->p >= 1.0f ? 0.0f : 1.0f / (1.0f - d->p);
    int64_t each = (width + 3) / 4;

    for (int64_t i = r0; i < r1; i++)
        for (int64_t b = 0; b < each; b += BLOCK) {
            int64_t n = each - b < BLOCK ? each - b : BLOCK, c = 4 * b;
            int64_t cols = width - c < 4 * n ? width - c : 4 * n;

            words(w, d->seed, d->stream, (uint64_t)(i * each + b), n);
            apply(out + (i - r0) * out_ld + c, in + (i - r0) * in_ld + c, w, least, scale, cols);
        }
}
