/*
 * top_check - head_top of a device against a sort on the host, for its tests on CPU and GPU.
 *
 * Values and ids must be those of the sort; the sum is within 1e-12 of one in order (f64 over some
 * 1e5 terms, each within an ulp of exp's).
 */
#ifndef CKPT_TESTS_UNIT_TOP_CHECK_H
#define CKPT_TESTS_UNIT_TOP_CHECK_H

#include "trainer/ops/ops.h"
#include "trainer/rng.h"

/* Kinds of rows: normal; few distinct values; all equal; rising; with -infinities; with a NaN. */
enum { TOP_NORMAL, TOP_FEW, TOP_EQUAL, TOP_RISING, TOP_HOLES, TOP_NAN, TOP_KINDS };

struct top_one {
    float   z;
    int32_t id;
};

static int top_order(const void *a, const void *b)
{
    const struct top_one *x = a, *y = b;

    if (x->z != y->z)
        return x->z > y->z ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static void top_rows(float *z, int64_t n, int64_t vocab, int kind)
{
    rng_normal(z, 0, n * vocab, 3.0f, 7, 1);
    for (int64_t i = 0; i < n * vocab; i++) {
        int64_t at = i % vocab;

        if (kind == TOP_FEW)
            z[i] = floorf(z[i] / 2);
        if (kind == TOP_EQUAL)
            z[i] = at % 2 ? 0.0f : -0.0f;
        if (kind == TOP_RISING)
            z[i] = (float)at * 1e-3f;
        if (kind == TOP_HOLES && at % 3 && at != 1)
            z[i] = -INFINITY;
        if (kind == TOP_NAN && at == vocab / 2)
            z[i] = at % 2 ? NAN : -NAN;
    }
}

static void top_check(struct device *dev, int64_t n, int64_t vocab, int64_t k, int kind)
{
    const struct ops *ops = dev->ops;
    size_t nv = (size_t)(n * vocab), nk = (size_t)(n * k);
    float *z = malloc(nv * sizeof *z), *value = malloc(nk * sizeof *value);
    int32_t *id = malloc(nk * sizeof *id);
    double *sum = malloc((size_t)n * sizeof *sum);
    struct top_one *sorted = malloc((size_t)vocab * sizeof *sorted);
    struct op_limits lim = {.top_rows = n, .vocab = vocab, .n = 1, .max_doc = 1, .dim = 1,
                            .n_head = 1, .n_kv = 1, .head_dim = 1, .ff = 1};
    struct op_top op = {.value = ops->alloc(dev, nk * sizeof *value), .n = n, .vocab = vocab,
                        .id = ops->alloc(dev, nk * sizeof *id), .k = k, .temperature = 0.7,
                        .sum = ops->alloc(dev, (size_t)n * sizeof *sum)};
    float *there = ops->alloc(dev, nv * sizeof *z);

    dev->work_bytes = ops->workspace(dev, &lim);
    dev->work = ops->alloc(dev, dev->work_bytes);
    top_rows(z, n, vocab, kind);
    ops->to_device(dev, there, z, nv * sizeof *z);
    op.logits = there;
    ops->head_top(dev, &op);
    ops->to_host(dev, value, op.value, nk * sizeof *value);
    ops->to_host(dev, id, op.id, nk * sizeof *id);
    ops->to_host(dev, sum, op.sum, (size_t)n * sizeof *sum);
    assert_int_equal(dev->err.code, 0);
    for (int64_t i = 0; i < n; i++) {
        double want = 0;

        for (int64_t j = 0; j < vocab; j++)
            sorted[j] = (struct top_one){z[i * vocab + j], (int32_t)j};
        if (kind == TOP_NAN) {
            assert_true(isnan(value[i * k]) && isnan(sum[i]));
            continue;
        }
        qsort(sorted, (size_t)vocab, sizeof *sorted, top_order);
        for (int64_t j = 0; j < k; j++) {
            assert_true(value[i * k + j] == sorted[j].z);
            assert_int_equal(id[i * k + j], sorted[j].id);
        }
        for (int64_t j = 0; j < vocab; j++)
            want += exp((double)(z[i * vocab + j] - sorted[0].z) / op.temperature);
        assert_true(fabs(sum[i] - want) <= 1e-12 * want);
    }
    ops->free(dev, op.value);
    ops->free(dev, op.id);
    ops->free(dev, op.sum);
    ops->free(dev, there);
    ops->free(dev, dev->work);
    dev->work = NULL;
    dev->work_bytes = 0;
    free(z);
    free(value);
    free(id);
    free(sum);
    free(sorted);
}

#endif
