/* drop - see drop.h.  A block of columns at a time: first its random words, then the product. */
#include "trainer/cpu/drop.h"

#include "trainer/cpu/cpu.h"
#include "trainer/philox.h"

#define BLOCK 64                /* counters handled at once: 256 columns, 1 KiB on the stack */

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

/* An element with a random word below this is dropped. */
static uint32_t least_of(const struct op_drop *d)
{
    return d->p >= 1 ? UINT32_MAX : (uint32_t)(d->p * 0x1p32);
}

static float scale_of(const struct op_drop *d) { return d->p >= 1 ? 0 : (float)(1 / (1 - d->p)); }

/* Counters of a row: both halves at its first column. */
static uint64_t high_of(uint64_t row, uint32_t stream) { return row >> 32 << 32 | stream; }
static uint64_t low_of(uint64_t row) { return row << 32; }

/* Columns [c0, c0 + n) of row i. */
static void span(float *out, const float *in, const struct op_drop *d, int64_t i, int64_t c0,
                 int64_t n)
{
    uint32_t w[4 * BLOCK], least = least_of(d);
    uint64_t high = high_of(d->rows[i], d->stream), low = low_of(d->rows[i]);
    int64_t lead = c0 % 4, end = (c0 + n + 3) / 4;

    for (int64_t b = c0 / 4; b < end; b += BLOCK) {
        int64_t some = end - b < BLOCK ? end - b : BLOCK;
        int64_t cols = n < 4 * some - lead ? n : 4 * some - lead;

        words(w, d->seed, high, low + (uint64_t)b, some);
        apply(out, in, w + lead, least, scale_of(d), cols);
        out += cols;
        in += cols;
        n -= cols;
        lead = 0;
    }
}

void cpu_drop_rows(float *out, int64_t out_ld, const float *in, int64_t in_ld,
                   const struct op_drop *d, int64_t r0, int64_t r1, int64_t width)
{
    for (int64_t i = r0; i < r1; i++)
        span(out + (i - r0) * out_ld, in + (i - r0) * in_ld, d, i, 0, width);
}

void cpu_drop_span(float *x, const struct op_drop *d, int64_t i, int64_t head, int64_t c0,
                   int64_t n)
{
    struct op_drop own = *d;

    own.stream += (uint32_t)head * OP_DROP_STREAMS;
    span(x, x, &own, i, c0, n);
}

void cpu_drop(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d)
{
    float *at = x;

    if (dev->err.code || !(d->p > 0))
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * n * width))
    for (int64_t i = 0; i < n; i++)
        cpu_drop_rows(at + i * width, width, at + i * width, width, d, i, i + 1, width);
}

CPU_HOT static void shake(float *x, const uint32_t *restrict w, float p, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        x[j] *= 1.0f + p * ((float)(int32_t)(w[j] >> 8) * 0x1p-23f - 1.0f);
}

void cpu_jitter(struct device *dev, void *x, int64_t n, int64_t width, const struct op_drop *d)
{
    int64_t each = (width + 3) / 4;

    if (dev->err.code || !(d->p > 0))
        return;
#pragma omp parallel for schedule(static) num_threads(cpu_threads(dev, 8 * n * width))
    for (int64_t i = 0; i < n; i++)
        for (int64_t b = 0; b < each; b += BLOCK) {
            uint32_t w[4 * BLOCK];
            uint64_t row = d->rows[i];
            int64_t some = each - b < BLOCK ? each - b : BLOCK;
            int64_t cols = width - 4 * b < 4 * some ? width - 4 * b : 4 * some;

            words(w, d->seed, high_of(row, d->stream), low_of(row) + (uint64_t)b, some);
            shake((float *)x + i * width + 4 * b, w, (float)d->p, cols);
        }
}
