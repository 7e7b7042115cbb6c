/*
 * head - the output projection and cross-entropy, forward and backward together for a chunk of
 * rows, so that logits of all rows never exist at once.
 *
 * A chunk is as many rows as fill CHUNK_BYTES of logits per thread: large enough for the matrix
 * products, small enough to stay in a cache; with the CPU's bf16 products (tiles.h) it is larger.
 * All threads work on each of a chunk's three products, by blocks (tile_tasks.h).
 */
#include "trainer/cpu/cpu.h"

#include <math.h>

#include "trainer/cpu/gemm.h"
#include "trainer/cpu/tile_tasks.h"
#include "trainer/cpu/typed.h"
#include "trainer/cpu/vmath.h"

#define CHUNK_BYTES ((int64_t)2 << 20)
#define TILE_BYTES  ((int64_t)64 << 20)
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

CPU_HOT static void shift_row(float *z, int64_t vocab, float by)
{
#pragma omp simd
    for (int64_t j = 0; j < vocab; j++)
        z[j] -= by;
}

/* Rounded once: a mean of many logits. */
CPU_HOT static float mean_of(const float *z, int64_t vocab)
{
    double sum = 0;

#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < vocab; j++)
        sum += (double)z[j];
    return (float)(sum / (double)vocab);
}

static int64_t chunk_rows(int64_t n, int64_t vocab, int threads)
{
    int64_t rows = CHUNK_BYTES / ((int64_t)sizeof(float) * vocab);

    rows = (rows < MIN_ROWS ? MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows) * threads;
    rows = rows < 2 * MIN_ROWS ? 2 * MIN_ROWS : rows;
    return rows < n ? rows : n;
}

/* Rows of a chunk for products of tiles, whose threads share the chunk. */
static int64_t tile_rows(int64_t n, int64_t vocab)
{
    int64_t rows = TILE_BYTES / ((int64_t)sizeof(float) * vocab) / 32 * 32;

    rows = rows < 2 * MIN_ROWS ? 2 * MIN_ROWS : rows > MAX_ROWS ? MAX_ROWS : rows;
    return rows < n ? rows : n;
}

/* The workspace of products of tiles. */
struct space {
    float    *z;                        /* [rows, vocab] */
    uint16_t *z_tiles, *x_tiles;        /* packed in either form */
};

static uint64_t lay_out(struct space *s, unsigned char *at, int64_t rows, int64_t vocab,
                        int64_t dim)
{
    int64_t across = tiles_packed(rows, vocab), along = tiles_packed(vocab, rows);
    int64_t x = tiles_packed(rows, dim), y = tiles_packed(dim, rows);
    uint64_t z = ((uint64_t)(rows * vocab) * sizeof(float) + 63) & ~(uint64_t)63;
    uint64_t tiles = (uint64_t)(across > along ? across : along) * sizeof(uint16_t);

    if (s)
        *s = (struct space){.z = (float *)(void *)at, .z_tiles = (uint16_t *)(void *)(at + z),
                            .x_tiles = (uint16_t *)(void *)(at + z + tiles)};
    return z + tiles + (uint64_t)(x > y ? x : y) * sizeof(uint16_t);
}

uint64_t cpu_head_work(const struct device *dev, const struct op_limits *l)
{
    if (cpu_kernel(dev) != TILES_NONE)
        return lay_out(NULL, NULL, tile_rows(l->n_rows, l->vocab), l->vocab,
                       l->embed ? l->embed : l->dim);
    return (uint64_t)chunk_rows(l->n_rows, l->vocab, dev->threads) * (uint64_t)l->vocab *
           sizeof(float);
}

/* The loss of one row; dz replaces its z. */
static void row_of(const struct op_head *a, float *z, int64_t row)
{
    int64_t target = a->targets[row], V = a->vocab;
    float e = a->smoothing, wanted = a->mul * z[target];
    float mean = e > 0 ? a->mul * mean_of(z, V) : 0, max, sum = soften(z, V, a->mul, &max);
    float all = logf(sum) + max, by = a->scale * a->mul;

    a->nll[row] = logf(sum) + (max - wanted);
    if (e > 0 || a->z_loss > 0)
        a->nll[row] += e * (wanted - mean) + a->z_loss * all * all;
    if (!a->dx)
        return;
    scale_row(z, V, by * (1 + 2 * a->z_loss * all) / sum);
    if (e > 0)
        shift_row(z, V, by * e / (float)V);
    z[target] -= by * (1 - e);
}

/* dx and dw of a chunk of n rows from its dz. */
static void tiles_back(const struct device *dev, const struct op_head *a, const struct space *s,
                       int64_t first, int64_t n)
{
    int64_t V = a->vocab, D = a->dim;
    struct tiles_side z = {.at = s->z, .ld = V, .along = true}, zt = {.at = s->z, .ld = V};
    struct tiles_side w = {.at = a->w, .ld = D, .bf16 = true};
    struct tiles_side x = {.at = (const float *)a->x + first * D, .ld = D};
    struct task_cut dx = task_cut(n, D, omp_get_num_threads());
    struct task_cut dw = task_cut(V, D, omp_get_num_threads());

    task_pack(dev, s->z_tiles, &z, false, n, V);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < dx.tasks; i++) {
        struct task_block b = task_block(&dx, i);

        task_matrix(dev, (float *)a->dx + first * D, D, &b, s->z_tiles, &w, V, false);
    }
    if (!a->dw)
        return;
    task_pack(dev, s->z_tiles, &zt, false, V, n);
    task_pack(dev, s->x_tiles, &x, true, D, n);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < dw.tasks; i++) {
        struct task_block b = task_block(&dw, i);

        task_packed(dev, a->dw, D, &b, s->z_tiles, s->x_tiles, n);
    }
}

/* The whole operation by the CPU's bf16 products. */
static void tiles_loss(struct device *dev, const struct op_head *a)
{
    int64_t chunk = tile_rows(a->n, a->vocab), V = a->vocab, D = a->dim;
    struct tiles_side w = {.at = a->w, .ld = D, .along = true, .bf16 = true};
    struct space s;

    if (cpu_work_short(dev, "head_loss", lay_out(&s, dev->work, chunk, V, D)))
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * D * V))
    for (int64_t first = 0; first < a->n; first += chunk) {
        unsigned was = cpu_flush();
        int64_t n = a->n - first < chunk ? a->n - first : chunk;
        struct tiles_side x = {.at = (const float *)a->x + first * D, .ld = D, .along = true};
        struct task_cut cut = task_cut(n, V, omp_get_num_threads());

        task_pack(dev, s.x_tiles, &x, false, n, D);
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < cut.tasks; i++) {
            struct task_block b = task_block(&cut, i);

            if (!device_stopped(dev))
                task_matrix(dev, s.z, V, &b, s.x_tiles, &w, D, false);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < n; i++)
            row_of(a, s.z + i * V, first + i);
        if (a->dx)
            tiles_back(dev, a, &s, first, n);
        cpu_flush_end(was);
    }
}

/* A chunk of n rows in f32: logits, losses, dz in place of the logits, then dx and dw. */
static void chunk_of(const struct device *dev, const struct op_head *a, float *z, int64_t first,
                     int64_t n)
{
    int64_t V = a->vocab, D = a->dim;
    const float *x = (const float *)a->x + first * D;
    struct task_cut cut = task_grid(n, V, omp_get_num_threads());
    struct task_cut dx = task_grid(n, D, omp_get_num_threads());
    struct task_cut dw = task_grid(V, D, omp_get_num_threads());

#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < cut.tasks; i++) {
        struct task_block b = task_block(&cut, i);

        if (!device_stopped(dev))
            typed_nt(dev, b.r1 - b.r0, b.c1 - b.c0, D, 1.0f, x + b.r0 * D, D,
                     typed_at(dev, a->w, b.c0 * D), D, 0.0f, z + b.r0 * V + b.c0, V);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++)
        row_of(a, z + i * V, first + i);
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (a->dx ? dx.tasks : 0); i++) {
        struct task_block b = task_block(&dx, i);

        typed_nn(dev, b.r1 - b.r0, b.c1 - b.c0, V, 1.0f, z + b.r0 * V, V,
                 typed_at(dev, a->w, b.c0), D, 0.0f, (float *)a->dx + (first + b.r0) * D + b.c0,
                 D);
    }
#pragma omp for schedule(dynamic, 1)
    for (int64_t i = 0; i < (a->dx && a->dw ? dw.tasks : 0); i++) {
        struct task_block b = task_block(&dw, i);

        gemm_tn(b.r1 - b.r0, b.c1 - b.c0, n, 1.0f, z + b.r0, V, x + b.c0, D, 1.0f,
                (float *)a->dw + b.r0 * D + b.c0, D);
    }
}

void cpu_head_loss(struct device *dev, const struct op_head *a)
{
    int64_t chunk = chunk_rows(a->n, a->vocab, dev->threads), V = a->vocab;

    if (a->fresh && a->dw)
        dev->ops->zero(dev, a->dw, (size_t)(V * a->dim) * sizeof(float));
    if (cpu_ended(dev))
        return;
    if (a->n > 0 && cpu_kernel(dev) != TILES_NONE) {
        tiles_loss(dev, a);
        return;
    }
    if (a->n == 0 || cpu_work_short(dev, "head_loss", (uint64_t)(chunk * V) * sizeof(float)))
        return;
#pragma omp parallel num_threads(cpu_threads(dev, a->n * a->dim * V))
    {
        unsigned was = cpu_flush();

        for (int64_t first = 0; first < a->n; first += chunk)
            chunk_of(dev, a, dev->work, first, a->n - first < chunk ? a->n - first : chunk);
        cpu_flush_end(was);
    }
}
