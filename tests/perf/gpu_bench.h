/*
 * gpu_bench - what the benchmarks of a GPU share: an open device, the arrays of a row, and timing.
 *
 * Times are of the host's clock between two syncs around many calls.
 */
#ifndef CKPT_TESTS_PERF_GPU_BENCH_H
#define CKPT_TESTS_PERF_GPU_BENCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/convert.h"
#include "libckpt/dtype.h"
#include "trainer/ops/ops.h"
#include "trainer/rng.h"

enum { BENCH_SAMPLE = 1 << 20, BENCH_ARRAYS = 160 };

struct bench {
    struct device *dev;
    const char    *only;            /* rows whose name contains it; NULL: all */
    void          *sample, *small;  /* BENCH_SAMPLE normal values of the device's type, of f32 */
    void          *arrays[BENCH_ARRAYS];        /* of the row that runs */
    int            n_arrays;
};

static inline void bench_need(int rc, const struct ckpt_err *err)
{
    if (rc) {
        fprintf(stderr, "%s\n", err->text);
        exit(1);
    }
}

static inline void bench_sync(const struct bench *b)
{
    struct ckpt_err err = {0};

    bench_need(device_sync(b->dev, &err), &err);
}

/* Open a GPU; only: a program's argument. */
static inline void bench_open(struct bench *b, const struct device_opts *opts, const char *only)
{
    struct ckpt_err err = {0};

    *b = (struct bench){.only = only};
    bench_need(device_open(&b->dev, opts, &err), &err);
}

/* A new workspace for these limits. */
static inline void bench_workspace(struct bench *b, const struct op_limits *l)
{
    b->dev->ops->free(b->dev, b->dev->work);
    b->dev->work_bytes = b->dev->ops->workspace(b->dev, l);
    b->dev->work = b->dev->ops->alloc(b->dev, b->dev->work_bytes);
}

/* Whether a row of that name is asked for. */
static inline bool bench_wanted(const struct bench *b, const char *name)
{
    return !b->only || strstr(name, b->only);
}

/* -- arrays of a row -------------------------------------------------------------------------- */

/* So many bytes: zeros, or the values given. */
static inline void *bench_array(struct bench *b, size_t bytes, const void *values)
{
    void *p = b->dev->ops->alloc(b->dev, bytes);

    if (values)
        b->dev->ops->to_device(b->dev, p, values, bytes);
    if (b->n_arrays < BENCH_ARRAYS)
        b->arrays[b->n_arrays++] = p;
    return p;
}

/* Normal values of that standard deviation for bench_values and bench_floats. */
static inline void bench_samples(struct bench *b, float scale)
{
    float *host = malloc(BENCH_SAMPLE * sizeof *host);
    void *narrow = malloc(BENCH_SAMPLE * sizeof *host);
    size_t wide = BENCH_SAMPLE * ckpt_dtype_size(b->dev->act);

    rng_normal(host, 0, BENCH_SAMPLE, scale, 17, 1);
    ckpt_convert(narrow, b->dev->act, host, CKPT_F32, BENCH_SAMPLE);
    b->sample = b->dev->ops->alloc(b->dev, wide);
    b->dev->ops->to_device(b->dev, b->sample, narrow, wide);
    b->small = b->dev->ops->alloc(b->dev, BENCH_SAMPLE * sizeof *host);
    b->dev->ops->to_device(b->dev, b->small, host, BENCH_SAMPLE * sizeof *host);
    bench_sync(b);
    free(narrow);
    free(host);
}

static inline void *bench_sampled(struct bench *b, int64_t n, size_t item, const void *sample)
{
    unsigned char *p = bench_array(b, (size_t)n * item, NULL);

    for (int64_t i = 0; i < n; i += BENCH_SAMPLE)
        b->dev->ops->copy(b->dev, p + (size_t)i * item, sample,
                          (size_t)(n - i < BENCH_SAMPLE ? n - i : BENCH_SAMPLE) * item);
    return p;
}

/* n normal values of the device's type, or of f32. */
static inline void *bench_values(struct bench *b, int64_t n)
{
    return bench_sampled(b, n, ckpt_dtype_size(b->dev->act), b->sample);
}

static inline void *bench_floats(struct bench *b, int64_t n)
{
    return bench_sampled(b, n, sizeof(float), b->small);
}

/* Free the row's arrays. */
static inline void bench_done(struct bench *b)
{
    bench_sync(b);
    while (b->n_arrays)
        b->dev->ops->free(b->dev, b->arrays[--b->n_arrays]);
}

/* Runs a table's row, if it is wanted. */
typedef void bench_row(struct bench *b, const void *row);

/* Run the rows of a table. */
#define BENCH_ROWS(b, run, rows)                                                               \
    bench_rows(b, run, rows, sizeof(rows) / sizeof(rows)[0], sizeof(rows)[0])

static inline void bench_rows(struct bench *b, bench_row *run, const void *rows, size_t n,
                              size_t size)
{
    for (size_t i = 0; i < n; i++) {
        run(b, (const char *)rows + i * size);
        bench_done(b);
    }
}

/* -- timing ----------------------------------------------------------------------------------- */

static inline double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef void bench_call(struct device *dev, const void *op);

/* A bench_call of the device's operation `entry`. */
#define BENCH_CALL(name, type, entry)                                                          \
    static void name(struct device *dev, const void *op)                                       \
    {                                                                                          \
        dev->ops->entry(dev, (const struct type *)op);                                         \
    }

/* Seconds of a call, over so many; ops [n] of that size are taken round robin. */
static inline double bench_seconds(const struct bench *b, bench_call *f, const void *ops,
                                   size_t size, int64_t n, int calls)
{
    double began;

    bench_sync(b);
    began = bench_now();
    for (int i = 0; i < calls; i++)
        f(b->dev, (const char *)ops + (size_t)(i % n) * size);
    bench_sync(b);
    return (bench_now() - began) / calls;
}

#endif
