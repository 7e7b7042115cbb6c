/*
 * top - the largest logits of each row, and the denominator of a softmax over all of them.
 *
 * A heap holds the k largest so far, the smallest of them at its root: a value not above the root
 * costs one comparison.
 */
#include "trainer/cpu/cpu.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct one {
    float   value;
    int32_t id;
};

/* Whether x ranks after y: smaller, or equal with a higher id. */
static bool after(const struct one *x, const struct one *y)
{
    return x->value < y->value || (x->value == y->value && x->id > y->id);
}

/* Restore a heap whose root ranks after all others. */
static void sink(struct one *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        struct one held = heap[at];

        if (child + 1 < n && after(&heap[child + 1], &heap[child]))
            child++;
        if (!after(&heap[child], &held))
            return;
        heap[at] = heap[child];
        heap[child] = held;
    }
}

/* Find the k largest of z, in falling order.  False: there is a NaN. */
static bool largest(struct one *heap, const float *z, int64_t vocab, int64_t k)
{
    for (int64_t j = 0; j < vocab; j++) {
        struct one x = {z[j], (int32_t)j};

        if (isnan(z[j]))
            return false;
        if (j < k) {
            heap[j] = x;
            for (int64_t at = k / 2 - 1; j == k - 1 && at >= 0; at--)
                sink(heap, k, at);
        } else if (after(&heap[0], &x)) {
            heap[0] = x;
            sink(heap, k, 0);
        }
    }
    for (int64_t n = k; n > 1;) {       /* heap sort: move the root behind the rest */
        struct one held = heap[0];

        heap[0] = heap[--n];
        heap[n] = held;
        sink(heap, n, 0);
    }
    return true;
}

void cpu_head_top(struct device *dev, const struct op_top *a)
{
    assert(a->k >= 1 && a->k <= a->vocab && a->k <= OP_TOP_MOST);
    if (dev->err.code)
        return;
#pragma omp parallel for num_threads(cpu_threads(dev, a->n * a->vocab * (a->sum ? 32 : 2)))
    for (int64_t i = 0; i < a->n; i++) {
        const float *z = a->logits + i * a->vocab;
        struct one heap[OP_TOP_MOST] = {{0}};
        bool fine = largest(heap, z, a->vocab, a->k);
        double sum = 0;

        for (int64_t j = 0; j < a->k; j++) {
            a->value[i * a->k + j] = fine ? heap[j].value : NAN;
            a->id[i * a->k + j] = fine ? heap[j].id : 0;
        }
        if (!a->sum)
            continue;
        for (int64_t j = 0; fine && j < a->vocab; j++)
            sum += exp((double)(z[j] - heap[0].value) / a->temperature);
        a->sum[i] = fine ? sum : NAN;
    }
}

void cpu_head_forbid(struct device *dev, const struct op_forbid *a)
{
    assert(a->n <= OP_FORBID_ROWS && a->n_ids <= OP_FORBID_IDS);
    if (dev->err.code)
        return;
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t k = 0; k < a->n_ids && (a->rows[i / 32] >> (i % 32) & 1); k++)
            a->logits[i * a->vocab + a->id[k]] = -INFINITY;
}
