/*
 * head - the output projection and cross-entropy, forward and backward in one visit of a chunk
 * of rows, so that logits of all rows never exist at once.
 *
 * A chunk is as many rows as fill CHUNK_BYTES of logits per thread: large enough for the matrix
 * products, small enough to stay in a cache.  Threads own rows for logits and dx, and rows of
 * dw (vocabulary entries) for the weight's gradient.
 */
#include "trainer/cpu/cpu.h"

#include <cblas.h>
#include <math.h>

#include "trainer/cpu/typed.h"
#include "trainer/cpu/vmath.h"

#define CHUNK_BYTES ((int64_t)2 << 20)
#define MIN_ROWS    32
#define MAX_ROWS    512

/* z[vocab] <- exp(mul z - max); gives its sum and the maximum. */
CPU_HOT static float soften(float *z, int64_t vocab, float mul, float *max)
{
    float m = z[0] * mul, sum = 0;

#pragma omp simd reduction(max : m)
    for (int64_t j = 0; j < vocab; j++) {
        float v = z[j] * mul;

        m = v > m ? v : m;
    }
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < vocab; j++) {
        float e = cpu_exp(z[j] * mul - m);

        z[j] = e;
        sum += e;
    }
    *max = m;
    return sum;
}

CPU_HOT static void scale_row(float *z, int64_t vocab, float by)
{
#pragma omp simd
    for (int64_t j = 0; j < vocab; j++)
        z[j] *= by;
}

static int64_t chunk_rows(int64_t n, int64_t vocab, int threads)
{
    int64_t rows = CHUNK_BYTES / ((int64_t)sizeof(float) * vocab);

    rows = (rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows) * threads;
    return rows < n ? rows : n;
}

uint64_t cpu_head_work(const struct device *dev, const struct op_limits *l)
{
    return (uint64_t)chunk_rows(l->n_rows, l->vocab, dev->threads) * (uint64_t)l->vocab *
           sizeof(float);
}

/* Rows [begin, end) of a chunk that starts at row `first`: losses, and dz in place of z. */
static void rows_of(const struct device *dev, const struct op_head *a, float *z, int64_t first,
                    int64_t begin, int64_t end)
{
    const float *x = (const float *)a->x + (first + begin) * a->dim;
    float *dx = a->dx ? (float *)a->dx + (first + begin) * a->dim : NULL;
    int64_t V = a->vocab;

    if (begin == end)
        return;
    z += begin * V;
    typed_nt(dev, end - begin, V, a->dim, 1.0f, x, a->dim, a->w, a->dim, 0.0f, z, V);
    for (int64_t i = 0; i < end - begin; i++) {
        int64_t row = first + begin + i, target = a->targets[row];
        float wanted = a->mul * z[i * V + target], max, sum;

        sum = soften(z + i * V, V, a->mul, &max);
        a->nll[row] = logf(sum) + (max - wanted);
        if (a->dx) {
            scale_row(z + i * V, V, a->scale * a->mul / sum);
            z[i * V + target] -= a->scale * a->mul;
        }
    }
    if (a->dx)
        typed_nn(dev, end - begin, a->dim, V, 1.0f, z, V, a->w, a->dim, 0.0f, dx, a->dim);
}

void cpu_head_loss(struct device *dev, const struct op_head *a)
{
    int64_t chunk = chunk_rows(a->n, a->vocab, dev->threads), V = a->vocab;
    float *z = dev->work, *dw = a->dw;

    if (dev->err.code || a->n == 0 ||
        cpu_work_short(dev, "head_loss", (uint64_t)(chunk * V) * sizeof(float)))
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->dim * V))
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();

        for (int64_t first = 0; first < a->n; first += chunk) {
            int64_t n = a->n - first < chunk ? a->n - first : chunk, begin, end;
            const float *x = (const float *)a->x + first * a->dim;

            cpu_range(&begin, &end, n, 8, me, threads);
            rows_of(dev, a, z, first, begin, end);
#pragma omp barrier
            cpu_range(&begin, &end, V, 16, me, threads);
            if (a->dx && dw && begin < end)
                cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)(end - begin),
                            (int)a->dim, (int)n, 1.0f, z + begin, (int)V, x, (int)a->dim, 1.0f,
                            dw + begin * a->dim, (int)a->dim);
#pragma omp barrier
        }
    }
}
