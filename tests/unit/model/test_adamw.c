/*
 * AdamW and the sum of squares: against the formula in f64, over odd lengths, any number of
 * threads giving the same bits.  (Agreement with torch over five steps is in test_model_bloom.)
 */
#include "tests/unit/model_help.h"

#include <math.h>
#include <stdlib.h>

#include "trainer/rng.h"

struct state {
    float  *p, *m, *v, *g;
    int64_t n;
};

static struct state state_new(int64_t n)
{
    struct state s = {.n = n};
    float **all[] = {&s.p, &s.m, &s.v, &s.g};

    for (size_t i = 0; i < 4; i++) {
        *all[i] = calloc((size_t)n + 1, sizeof(float));
        assert_non_null(*all[i]);
        if (i != 1 && i != 2)
            rng_normal(*all[i], 0, n, 1, 5, i);
    }
    return s;
}

static void state_free(struct state *s)
{
    free(s->p);
    free(s->m);
    free(s->v);
    free(s->g);
}

static void step(struct device *dev, const struct state *s, double decay, const struct adamw *a)
{
    struct adamw_run run = {.param = s->p, .exp_avg = s->m, .exp_avg_sq = s->v, .grad = s->g,
                            .n = s->n, .weight_decay = decay};

    dev->ops->adamw(dev, &run, 1, a);
}

TEST(adamw_follows_the_formula)
{
    static const int64_t sizes[] = {0, 1, 7, 16383, 16384, 40001};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct device *dev = cpu_device(3);
        struct state s = state_new(sizes[k]), w = state_new(sizes[k]);
        struct adamw a = {.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8,
                          .grad_scale = 0.5};
        double *m = calloc((size_t)s.n + 1, sizeof *m), *v = calloc((size_t)s.n + 1, sizeof *v);
        double *p = calloc((size_t)s.n + 1, sizeof *p);

        for (int64_t i = 0; i < s.n; i++)
            p[i] = (double)s.p[i];
        for (a.step = 1; a.step <= 4; a.step++) {
            step(dev, &s, 0.1, &a);
            for (int64_t i = 0; i < s.n; i++) {
                double g = 0.5 * (double)s.g[i];

                m[i] = 0.9 * m[i] + 0.1 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                p[i] -= 3e-3 * 0.1 * p[i];
                p[i] -= 3e-3 * (m[i] / (1 - pow(0.9, (double)a.step))) /
                        (sqrt(v[i] / (1 - pow(0.999, (double)a.step))) + 1e-8);
            }
        }
        for (int64_t i = 0; i < s.n; i++) {
            assert_true(fabs((double)s.m[i] - m[i]) <= 3e-7 * (fabs(m[i]) + 1e-3));
            assert_true(fabs((double)s.v[i] - v[i]) <= 3e-7 * (fabs(v[i]) + 1e-6));
            assert_true(fabs((double)s.p[i] - p[i]) <= 1e-6 * (fabs(p[i]) + 1e-1));
        }
        assert_memory_equal(s.g, w.g, (size_t)s.n * sizeof(float)); /* not scaled in place */
        free(m);
        free(v);
        free(p);
        state_free(&s);
        state_free(&w);
        device_close(dev);
    }
}

TEST(adamw_gives_the_same_bits_on_any_threads)
{
    struct state one = state_new(70001);

    for (int threads = 1; threads <= 4; threads++) {
        struct device *dev = cpu_device(threads);
        struct state s = state_new(70001);
        struct adamw a = {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .grad_scale = 1,
                          .step = 1};

        step(dev, &s, 0, &a);
        if (threads == 1)
            memcpy(one.p, s.p, (size_t)s.n * sizeof(float));
        assert_memory_equal(one.p, s.p, (size_t)s.n * sizeof(float));
        state_free(&s);
        device_close(dev);
    }
    state_free(&one);
}

TEST(sum_squares_is_exact_and_repeats)
{
    static const int64_t sizes[] = {0, 1, 63, 1000, 100003};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        struct state s = state_new(sizes[k]);
        double want = 0, first = 0;

        for (int64_t i = 0; i < s.n; i++)
            want += (double)s.g[i] * (double)s.g[i];
        for (int threads = 1; threads <= 5; threads++) {
            struct device *dev = cpu_device(threads);
            double sum = -1;

            dev->ops->sum_squares(dev, &sum, s.g, s.n);
            assert_true(fabs(sum - want) <= 1e-12 * want);
            first = threads == 1 ? sum : first;
            assert_true(sum == first);
            device_close(dev);
        }
        state_free(&s);
    }
}

/* After a failure operations do nothing and the first sentence stays. */
TEST(device_is_sticky)
{
    struct ckpt_err err = {0};
    struct device *dev = cpu_device(1);
    struct state s = state_new(5);
    struct adamw a = {.lr = 1, .step = 1};
    float held = s.p[0];

    assert_null(dev->ops->alloc(dev, SIZE_MAX - 100));
    assert_int_equal(device_sync(dev, &err), CKPT_ENOMEM);
    step(dev, &s, 0, &a);
    assert_true(s.p[0] == held);
    state_free(&s);
    device_close(dev);
    assert_int_equal(device_open_cpu(&dev, -1, &err), CKPT_ECONFIG);
    assert_null(dev);
    device_close(dev);
}

TEST(device_memory_is_aligned_and_zeroed)
{
    struct device *dev = cpu_device(1);

    for (size_t bytes = 0; bytes < 3000; bytes += 333) {
        unsigned char *p = dev->ops->alloc(dev, bytes);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 256, 0);
        for (size_t i = 0; i < bytes; i++)
            assert_int_equal(p[i], 0);
        memset(p, 1, bytes);
        dev->ops->free(dev, p);
    }
    assert_int_equal(dev->n_alloc, 10);
    dev->ops->free(dev, NULL);
    device_close(dev);
}

/* The first moment of an element that gets no gradient any more. */
TEST(moments_decay_to_nothing)
{
    struct adamw a = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step = 1000,
                      .grad_scale = 1};
    struct device *dev = cpu_device(2);
    struct state s = state_new(20000);

    memset(s.g, 0, (size_t)s.n * sizeof *s.g);
    for (int64_t i = 0; i < s.n; i++)
        s.m[i] = s.v[i] = 1.2e-38f;
    for (int i = 0; i < 20; i++)
        step(dev, &s, 0, &a);
    for (int64_t i = 0; i < s.n; i++)
        assert_true(s.m[i] == 0 && s.v[i] == 0);
    state_free(&s);
    device_close(dev);
}
