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

/* Memory of a case, until device_done. */
static void *taken[64];
static int   n_taken;

static inline void *zeros(int64_t n, size_t size)
{
    assert_in_range(n_taken, 0, sizeof taken / sizeof taken[0] - 1);
    taken[n_taken] = calloc((size_t)n + 1, size);
    assert_non_null(taken[n_taken]);
    return taken[n_taken++];
}

/* An array in both types: f the operation's, d the formula's. */
struct array {
    int64_t n;
    float  *f;
    double *d;
};

static inline struct array array_new(int64_t n)
{
    return (struct array){n, zeros(n, sizeof(float)), zeros(n, sizeof(double))};
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

/* f must agree with d. */
static inline void agree(const struct array *a, const char *what)
{
    double max = 0;

    for (int64_t i = 0; i < a->n; i++)
        max = fmax(max, fabs(a->d[i]));
    for (int64_t i = 0; i < a->n; i++)
        if (!(fabs((double)a->f[i] - a->d[i]) <= TOL * fmax(max, 1e-3)))
            fail_msg("%s[%d of %d] is %.8g, wanted %.8g (largest %.3g)", what, (int)i,
                     (int)a->n, (double)a->f[i], a->d[i], max);
}

/*
 * An operation's formula, the first member of a case's struct: fill writes out.d from the d
 * side of its inputs.  The loss is the sum of weight * out.
 */
struct formula {
    void       (*fill)(struct formula *);
    struct array out, weight;
};

static inline void formula_init(struct formula *of, void (*fill)(struct formula *), int64_t n)
{
    *of = (struct formula){.fill = fill, .out = array_new(n), .weight = array_random(n)};
}

/* out.f must agree with the formula. */
static inline void check_out(struct formula *of, const char *what)
{
    of->fill(of);
    agree(&of->out, what);
}

static inline double loss(struct formula *of)
{
    double sum = 0;

    of->fill(of);
    for (int64_t i = 0; i < of->out.n; i++)
        sum += of->weight.d[i] * of->out.d[i];
    return sum;
}

/* found.f against `before` (NULL: overwritten) and central differences of the loss by x. */
static inline void check_gradient(struct formula *of, const struct array *found,
                                  const double *before, struct array *x, const char *what)
{
    struct array want = {.n = x->n, .f = found->f, .d = zeros(x->n, sizeof(double))};

    for (int64_t i = 0; i < x->n; i++) {
        double held = x->d[i], up, down;

        x->d[i] = held + STEP;
        up = loss(of);
        x->d[i] = held - STEP;
        down = loss(of);
        x->d[i] = held;
        want.d[i] = (up - down) / (2 * STEP) + (before ? before[i] : 0);
    }
    agree(&want, what);
}

/* A gradient that is overwritten, and one that is added to its random beginning. */
static inline void check_written(struct formula *of, const struct array *found, struct array *x,
                                 const char *what)
{
    check_gradient(of, found, NULL, x, what);
}

static inline void check_added(struct formula *of, const struct array *found, struct array *x,
                               const char *what)
{
    check_gradient(of, found, found->d, x, what);
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
    while (n_taken > 0)
        free(taken[--n_taken]);
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
