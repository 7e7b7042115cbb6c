/*
 * gradients - what the tests of operations share: arrays in f32 and f64, agreement with a
 * formula, central differences of it.
 */
#ifndef CKPT_TESTS_AGREE_GRADIENTS_H
#define CKPT_TESTS_AGREE_GRADIENTS_H

#include "tests/unit/unit.h"

#include <math.h>

#include "trainer/ops/ops.h"

#define TOL  5e-6
#define STEP 1e-5

static uint32_t seed = 1;

/* Uniform in [-1, 1), exact in f32. */
static inline double random_value(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(int32_t)(seed >> 9) / (1 << 22) - 1.0;
}

/* An array in both types: f the operation's, d the formula's. */
struct array {
    int64_t n;
    float  *f;
    double *d;
};

static inline struct array array_new(int64_t n)
{
    struct array a = {n, calloc((size_t)n + 1, sizeof(float)),
                      calloc((size_t)n + 1, sizeof(double))};

    assert_non_null(a.f);
    assert_non_null(a.d);
    return a;
}

static inline struct array array_random(int64_t n)
{
    struct array a = array_new(n);

    for (int64_t i = 0; i < n; i++) {
        a.d[i] = random_value();
        a.f[i] = (float)a.d[i];
    }
    return a;
}

static inline void array_free(struct array *a)
{
    free(a->f);
    free(a->d);
}

/* f must agree with d. */
static inline void agree(const float *f, const double *d, int64_t n, const char *what)
{
    double max = 0;

    for (int64_t i = 0; i < n; i++)
        max = fmax(max, fabs(d[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)f[i] - d[i]) <= TOL * fmax(max, 1e-3)))
            fail_msg("%s[%d of %d] is %.8g, wanted %.8g (largest %.3g)", what, (int)i, (int)n,
                     (double)f[i], d[i], max);
}

/* The formula: fills its outputs from the d side of its inputs; gives the loss. */
typedef double formula_fn(void *ctx);

/* Central differences of the loss by every element of x; plus gives what was there before. */
static inline void differences(struct array *out, struct array *x, formula_fn *formula, void *ctx)
{
    *out = array_new(x->n);
    for (int64_t i = 0; i < x->n; i++) {
        double held = x->d[i], up, down;

        x->d[i] = held + STEP;
        up = formula(ctx);
        x->d[i] = held - STEP;
        down = formula(ctx);
        x->d[i] = held;
        out->d[i] = (up - down) / (2 * STEP);
    }
}

/* found (f32, which held `before` or was to be overwritten) against differences by x. */
static inline void check_gradient(const float *found, const double *before, struct array *x,
                           formula_fn *formula, void *ctx, const char *what)
{
    struct array want;

    differences(&want, x, formula, ctx);
    for (int64_t i = 0; before && i < x->n; i++)
        want.d[i] += before[i];
    agree(found, want.d, x->n, what);
    array_free(&want);
}

static inline struct device *device(int threads)
{
    struct ckpt_err err = {0};
    struct device *dev;

    assert_int_equal(device_open_cpu(&dev, threads, &err), 0);
    dev->grain = 0;                     /* all threads, however little there is to do */
    dev->work_bytes = 32 << 20;
    dev->work = dev->ops->alloc(dev, dev->work_bytes);
    assert_non_null(dev->work);
    return dev;
}

static inline void device_done(struct device *dev)
{
    struct ckpt_err err = {0};

    if (device_sync(dev, &err))
        fail_msg("%s", err.text);
    dev->ops->free(dev, dev->work);
    device_close(dev);
}

/* The activation functions, as ops.h has them. */
static inline double act_formula(enum op_act act, double x)
{
    switch (act) {
    case OP_ACT_NONE:
        return x;
    case OP_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case OP_ACT_GELU_ERF:
        return 0.5 * x * (1 + erf(x / sqrt(2)));
    case OP_ACT_RELU:
        return x > 0 ? x : 0;
    case OP_ACT_SILU:
        return x / (1 + exp(-x));
    }
    return NAN;
}

#endif
