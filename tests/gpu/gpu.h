/*
 * gpu - the same operation on a GPU and on the CPU, and comparing their results.
 *
 * The CPU computes in f32 and is the reference.  Inputs of a 16-bit type are rounded to it on
 * both sides first, so that only the operation's own rounding can differ.
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

/* The largest error of a result, relative to the largest value of its array.  One rounding to
 * bf16 is 2^-9, to f16 2^-12; sums of many products in f32 stay below 1e-6 of their largest
 * term. */
static inline double gpu_bound(enum ckpt_dtype t)
{
    return t == CKPT_BF16 ? 8e-3 : t == CKPT_F16 ? 1.5e-3 : 5e-6;
}

/* The same for sums in f32, of up to some thousand products in another order, whose terms are
 * rounded alike on both sides. */
#define GPU_SUM_BOUND 2e-5

/* One array on both sides; the CPU has f32, or I32. */
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
 * SMALL in the environment: 1 under a sanitizer, where an access takes some hundred times as
 * long: awkward shapes only, one run of each, and no f16, whose code is that of bf16 but for
 * conversions.  2 under racecheck, which takes longer still and looks at blocks one by one:
 * fewer shapes.
 */
static inline int gpu_small(void)
{
    const char *small = getenv("SMALL");

    return !small ? 0 : *small == '2' ? 2 : 1;
}

/* Whether SMALL leaves out a case whose largest array has so many elements. */
static inline bool gpu_left_out(int64_t elements)
{
    return gpu_small() && elements > (gpu_small() == 2 ? 30000 : 250000);
}

/* Types of activations and weights, and how many are tried. */
static const enum ckpt_dtype gpu_types[] = {CKPT_F32, CKPT_BF16, CKPT_F16};

static inline int gpu_n_types(void)
{
    return gpu_small() ? 2 : 3;
}

/* The first to try where f32 runs hardly anything but products of cuBLAS. */
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

/* Open both, the GPU as opts say, with workspaces for these limits on each side. */
static inline void gpu_open_as(struct gpu *g, const struct device_opts *opts,
                               const struct op_limits *l)
{
    struct ckpt_err err = {0};
    struct device *dev[2];

    memset(g, 0, sizeof *g);
    /* Reuse freed memory: fresh pages from the kernel cost more than most cases. */
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

/* Hold an array until gpu_release. */
static inline struct both gpu_hold(struct gpu *g, struct both b)
{
    if ((g->n_held & (g->n_held - 1)) == 0)
        g->held = realloc(g->held, (g->n_held ? 2 * g->n_held : 1) * sizeof *g->held);
    g->held[g->n_held++] = b;
    return b;
}

/* Free all arrays made so far, the newest first. */
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

/* Run a test on devices of each type from gpu_types[first] on. */
static inline void gpu_over_types(int first, const struct op_limits *l,
                                  void (*test)(struct gpu *g))
{
    for (int t = first; t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], l);
        test(&g);
        gpu_close(&g);
    }
}

/* The values of host[n] (f32) to both sides, rounded to the type on both. */
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
    return gpu_hold(g, b);
}

/* Normal values of that standard deviation into to[n], other ones each time: read in a circle,
 * each time from another place, from values drawn once.  Drawing all anew takes longer than the
 * operations; the number of values is a prime, so that no two rows begin alike. */
static inline void gpu_normal(struct gpu *g, float *to, int64_t n, float scale)
{
    enum { BLOCK = 1048583, STEP = 648091 };
    static float block[BLOCK];
    size_t at = (size_t)(++g->draws * STEP % BLOCK);

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

/* An output: NaN on both sides, so that elements that are not written show. */
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
    return gpu_hold(g, b);
}

/* What op_drop.rows reads, of n rows in no order: an element of a row is two numbers. */
static inline struct both gpu_drop_rows(struct gpu *g, int64_t n)
{
    int32_t *host = malloc((size_t)(2 * n + 1) * sizeof *host);
    struct both b;

    for (int64_t i = 0; i < n; i++) {
        host[2 * i] = (int32_t)(i * 7 % (n + 5));
        host[2 * i + 1] = (int32_t)(i % 3 - 1);
    }
    b = gpu_ints(g, host, 2 * n);
    free(host);
    return b;
}

static inline size_t gpu_size(const struct both *b)
{
    return (size_t)b->n * ckpt_dtype_size(b->type);
}

/* The GPU's bytes now; the caller frees them. */
static inline void *gpu_bytes(struct gpu *g, const struct both *b)
{
    void *out = malloc(gpu_size(b) + 1);

    g->gpu->ops->to_host(g->gpu, out, b->gpu, gpu_size(b));
    gpu_fine(g);
    return out;
}

/* The GPU's array as f32 [n]; the caller frees it. */
static inline float *gpu_fetch(struct gpu *g, const struct both *b)
{
    void *narrow = gpu_bytes(g, b);
    float *out = malloc((size_t)b->n * sizeof *out + 1);

    ckpt_convert(out, CKPT_F32, narrow, b->type, (size_t)b->n);
    free(narrow);
    return out;
}

/* Two arrays of the GPU have the same bytes. */
static inline void gpu_same(struct gpu *g, const char *name, const struct both *x,
                            const struct both *y)
{
    void *a = gpu_bytes(g, x), *b = gpu_bytes(g, y);

    if (memcmp(a, b, gpu_size(x)) != 0)
        fail_msg("%s: two runs differ", name);
    free(a);
    free(b);
}

/* |x - y| <= bound * the largest |y| for each element; the message names the worst. */
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

/* -- cases ------------------------------------------------------------------------------------ */

/* Arrays that a case writes, each with its name and bound. */
struct gpu_results {
    struct gpu_result {
        char name[160];
        struct both array;
        double bound;
    } at[32];
    size_t n;
};

__attribute__((format(printf, 4, 5)))
static inline void gpu_result(struct gpu_results *r, const struct both *array, double bound,
                              const char *name, ...)
{
    struct gpu_result *to = &r->at[r->n];
    va_list ap;

    assert_true(r->n++ < sizeof r->at / sizeof r->at[0]);
    va_start(ap, name);
    vsnprintf(to->name, sizeof to->name, name, ap);
    va_end(ap);
    to->array = *array;
    to->bound = bound;
}

/* Make a case's arrays, run it on the GPU and, with `cpu`, on the CPU too, and list its
 * results. */
typedef void gpu_case(struct gpu *g, const void *c, bool cpu, struct gpu_results *r);

/* The GPU's results are those of the CPU, within their bounds; a second run from the same
 * inputs gives the same bits. */
static inline void gpu_check(struct gpu *g, gpu_case *run, const void *c)
{
    struct gpu_results first = {.n = 0}, again = {.n = 0};
    uint64_t draws = g->draws;

    run(g, c, true, &first);
    if (!gpu_small()) {
        g->draws = draws;
        run(g, c, false, &again);
    }
    for (size_t i = 0; i < first.n; i++) {
        const struct gpu_result *r = &first.at[i];

        gpu_close_to(g, r->name, &r->array, r->bound);
        if (again.n)
            gpu_same(g, r->name, &r->array, &again.at[i].array);
    }
    gpu_fine(g);
    gpu_release(g);
}

/* Check each case of an array on devices of each type from gpu_types[first] on. */
#define GPU_CHECK_ALL(first, limits, run, c)                                                   \
    gpu_check_all(first, limits, run, c, sizeof(c) / sizeof(c)[0], sizeof(c)[0])

static inline void gpu_check_all(int first, const struct op_limits *l, gpu_case *run,
                                 const void *c, size_t n, size_t size)
{
    for (int t = first; t < gpu_n_types(); t++) {
        struct gpu g;

        gpu_open(&g, gpu_types[t], l);
        for (size_t i = 0; i < n; i++)
            gpu_check(&g, run, (const char *)c + i * size);
        gpu_close(&g);
    }
}

#endif
