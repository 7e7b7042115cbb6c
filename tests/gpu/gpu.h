/*
 * gpu - a GPU and the CPU side by side: the same operation on both, and how far apart they end.
 *
 * The CPU computes in f32 and is the oracle.  A value that goes to a GPU of 16 bits is rounded to
 * them on both sides first, so that only what the operation itself rounds can differ.
 */
#ifndef CKPT_TESTS_GPU_GPU_H
#define CKPT_TESTS_GPU_GPU_H

#include "tests/unit/unit.h"

#include <limits.h>
#include <malloc.h>
#include <math.h>

#include "libckpt/convert.h"
#include "libckpt/dtype.h"
#include "trainer/ops/ops.h"
#include "trainer/rng.h"

/* What a result may be off by, relative to the largest value of its array.  One rounding to bf16
 * is 2^-9, to f16 2^-12; sums of many products in f32 stay below 1e-6 of their largest term. */
static inline double gpu_bound(enum ckpt_dtype t)
{
    return t == CKPT_BF16 ? 8e-3 : t == CKPT_F16 ? 1.5e-3 : 5e-6;
}

/* One array on both sides.  kind F32 where both have f32, I32 for integers, else the GPU's type. */
struct both {
    void  *cpu, *gpu;
    int64_t n;
    enum ckpt_dtype type;           /* on the GPU */
};

struct gpu {
    struct device *cpu, *gpu;
    enum ckpt_dtype type;           /* of the GPU's activations and weights */
    uint64_t draws;                 /* random arrays so far: each has values of its own */
    struct both *held;              /* [n_held]: arrays until gpu_release */
    size_t n_held;
};

/*
 * SMALL in the environment: under a sanitizer an access takes some hundred times as long.  Shapes that
 * are awkward tell as much there as those that are large, a second run no more than the first, nor
 * does f16, which is bf16's code with another conversion.  2: more so, for what looks at blocks
 * one by one, of which those of large arrays are all alike.
 */
static inline int gpu_small(void)
{
    const char *small = getenv("SMALL");

    return !small ? 0 : *small == '2' ? 2 : 1;
}

/* Whether a case is left out then, of so many elements of its largest array. */
static inline bool gpu_left_out(int64_t elements)
{
    return gpu_small() && elements > (gpu_small() == 2 ? 30000 : 250000);
}

/* The types that activations and weights can have, and how many are tried. */
static const enum ckpt_dtype gpu_types[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

static inline int gpu_n_types(void)
{
    return gpu_small() ? 2 : 3;
}

/* The first that is tried where nearly all that f32 takes are products of cuBLAS. */
static inline int gpu_first_type(void)
{
    return gpu_small() == 2;
}

static inline void gpu_fine(struct gpu *g)
{
    struct ckpt_err err = {0};

    if (device_sync(g->gpu, &err))
        fail_msg("GPU: %s", err.text);
    if (device_sync(g->cpu, &err))
        fail_msg("CPU: %s", err.text);
}

/* Opens both, the GPU as opts say, with workspaces for these limits on each side. */
static inline void gpu_open_as(struct gpu *g, const struct device_opts *opts,
                               const struct op_limits *l)
{
    struct ckpt_err err = {0};
    struct device *dev[2];

    memset(g, 0, sizeof *g);
    /* What is freed is taken again: pages that the kernel gives anew cost more than most cases. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    g->type = opts->weights;
    if (device_open_cpu(&g->cpu, gpu_small() ? 1 : 4, &err) || device_open(&g->gpu, opts, &err))
        fail_msg("%s", err.text);
    dev[0] = g->cpu;
    dev[1] = g->gpu;
    for (int i = 0; l && i < 2; i++) {
        dev[i]->work_bytes = dev[i]->ops->workspace(dev[i], l);
        dev[i]->work = dev[i]->ops->alloc(dev[i], dev[i]->work_bytes);
    }
    gpu_fine(g);
}

static inline void gpu_open(struct gpu *g, enum ckpt_dtype type, const struct op_limits *l)
{
    struct device_opts opts = {.name = "cuda", .weights = type};

    gpu_open_as(g, &opts, l);
}

/* Of the next array to be held. */
static inline struct both *gpu_hold(struct gpu *g)
{
    if ((g->n_held & (g->n_held - 1)) == 0)
        g->held = realloc(g->held, (g->n_held ? 2 * g->n_held : 1) * sizeof *g->held);
    return &g->held[g->n_held++];
}

/* All arrays made so far go, the newest first. */
static inline void gpu_release(struct gpu *g)
{
    for (; g->n_held; g->n_held--) {
        g->cpu->ops->free(g->cpu, g->held[g->n_held - 1].cpu);
        g->gpu->ops->free(g->gpu, g->held[g->n_held - 1].gpu);
    }
    free(g->held);
    g->held = NULL;
}

static inline void gpu_close(struct gpu *g)
{
    gpu_release(g);
    if (g->cpu->work)
        g->cpu->ops->free(g->cpu, g->cpu->work);
    device_close(g->gpu);
    device_close(g->cpu);
}

/* The values of host[n] (f32) to both sides, rounded to the type; the host's are rounded too. */
static inline struct both gpu_values(struct gpu *g, enum ckpt_dtype type, const float *host,
                                     int64_t n)
{
    struct both b = {NULL, NULL, n, type};
    size_t wide = (size_t)n * ckpt_dtype_size(type);
    void *narrow = malloc(wide + 1);

    ckpt_convert(narrow, type, host, CKPT_F32, (size_t)n);
    b.cpu = g->cpu->ops->alloc(g->cpu, (size_t)n * sizeof(float));
    ckpt_convert(b.cpu, CKPT_F32, narrow, type, (size_t)n);
    b.gpu = g->gpu->ops->alloc(g->gpu, wide);
    g->gpu->ops->to_device(g->gpu, b.gpu, narrow, wide);
    free(narrow);
    *gpu_hold(g) = b;
    return b;
}

/* Normal values of that standard deviation into to[n], other ones each time.  They are drawn once
 * and read from another place each time, over and over; the number of them is a prime, so that no
 * two rows begin alike: to draw as many anew took longer than what is tested. */
static inline void gpu_normal(struct gpu *g, float *to, int64_t n, float scale)
{
    enum { BLOCK = 1048583, APART = 648091 };
    static float block[BLOCK];
    size_t at = (size_t)(++g->draws * APART % BLOCK);

    if (block[0] == 0)
        rng_normal(block, 0, BLOCK, 1.0f, 17, 1);
    for (int64_t i = 0; i < n; i++) {
        to[i] = scale * block[at];
        at = at + 1 < BLOCK ? at + 1 : 0;
    }
}

static inline struct both gpu_random(struct gpu *g, enum ckpt_dtype type, int64_t n, float scale)
{
    float *host = malloc((size_t)n * sizeof *host + 1);
    struct both b;

    gpu_normal(g, host, n, scale);
    b = gpu_values(g, type, host, n);
    free(host);
    return b;
}

/* An output: filled with NaN on both sides, so that what is not written shows. */
static inline struct both gpu_blank(struct gpu *g, enum ckpt_dtype type, int64_t n)
{
    float *host = malloc((size_t)n * sizeof *host + 1);
    struct both b;

    for (int64_t i = 0; i < n; i++)
        host[i] = NAN;
    b = gpu_values(g, type, host, n);
    free(host);
    return b;
}

static inline struct both gpu_ints(struct gpu *g, const int32_t *host, int64_t n)
{
    struct both b = {NULL, NULL, n, CKPT_I32};

    b.cpu = g->cpu->ops->alloc(g->cpu, (size_t)n * sizeof *host);
    memcpy(b.cpu, host, (size_t)n * sizeof *host);
    b.gpu = g->gpu->ops->alloc(g->gpu, (size_t)n * sizeof *host);
    g->gpu->ops->to_device(g->gpu, b.gpu, host, (size_t)n * sizeof *host);
    *gpu_hold(g) = b;
    return b;
}

/* The GPU's array as f32 [n]; the caller frees it. */
static inline float *gpu_fetch(struct gpu *g, const struct both *b)
{
    size_t wide = (size_t)b->n * ckpt_dtype_size(b->type);
    void *narrow = malloc(wide + 1);
    float *out = malloc((size_t)b->n * sizeof *out + 1);

    g->gpu->ops->to_host(g->gpu, narrow, b->gpu, wide);
    gpu_fine(g);
    ckpt_convert(out, CKPT_F32, narrow, b->type, (size_t)b->n);
    free(narrow);
    return out;
}

/* |x - y| <= bound * the largest |y| for each element; tells the worst. */
static inline void gpu_close_to(struct gpu *g, const char *name, const struct both *b,
                                double bound)
{
    float *got = gpu_fetch(g, b), *want = b->cpu;
    double most = 1e-30, worst = 0;
    int64_t at = 0;

    for (int64_t i = 0; i < b->n; i++)
        most = fmax(most, fabs((double)want[i]));
    for (int64_t i = 0; i < b->n; i++) {
        double off = isnan(want[i]) && isnan(got[i]) ? 0 : fabs((double)got[i] - (double)want[i]);

        if (!(off <= worst)) {
            worst = off;
            at = i;
            if (isnan(off))
                break;
        }
    }
    if (!(worst <= bound * most))
        fail_msg("%s[%lld] of %lld (%s): GPU %.9g, CPU %.9g: off by %.3g of %.3g, bound %.1e", name,
                 (long long)at, (long long)b->n, ckpt_dtype_name(g->type), (double)got[at],
                 (double)want[at], worst / most, most, bound);
    free(got);
}

/* The GPU's bytes now; the caller frees them.  Two runs must give the same. */
static inline void *gpu_bytes(struct gpu *g, const struct both *b)
{
    size_t wide = (size_t)b->n * ckpt_dtype_size(b->type);
    void *out = malloc(wide + 1);

    g->gpu->ops->to_host(g->gpu, out, b->gpu, wide);
    gpu_fine(g);
    return out;
}

#endif
