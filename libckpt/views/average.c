/* views/average - several checkpoints of one model as their weighted mean; see view.h. */
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/views/views.h"

#define BLOCK 4096              /* elements averaged at a time: 64 KiB of a thread's stack */

struct average {
    struct view          view;      /* view of the first source; first member, so that both are
                                       freed as one block */
    struct ckpt_source **other;     /* [n - 1] */
    size_t             **index;     /* [n - 1][tensors] index of the tensor of the same name */
    double              *weight;    /* [n], sum 1 */
    size_t               n;
};

static void average_close(void *self)
{
    struct average *a = self;

    for (size_t k = 0; a->other && k + 1 < a->n; k++)
        ckpt_source_close(a->other[k]);
    for (size_t k = 0; a->index && k + 1 < a->n; k++)
        ckpt_free(a->index[k]);
    ckpt_free(a->other);
    ckpt_free(a->index);
    ckpt_free(a->weight);
    view_close(a);
}

/* Source k of the mean, and tensor i's index in it. */
static struct ckpt_source *source_of(const struct average *a, size_t k, size_t i, size_t *index)
{
    *index = k ? a->index[k - 1][i] : i;
    return k ? a->other[k - 1] : a->view.below;
}

/* Integers and bools have no mean: they must be equal in all.  dst holds those of the first. */
static int compare_rest(const struct average *a, size_t i, int64_t start, int64_t count,
                        const unsigned char *dst, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(a->view.below, i);
    size_t width = ckpt_dtype_size(t->dtype), index;
    unsigned char block[BLOCK * 16];
    int64_t step = (int64_t)(sizeof block / width);
    int rc;

    for (size_t k = 1; k < a->n; k++) {
        struct ckpt_source *src = source_of(a, k, i, &index);

        for (int64_t at = 0; at < count; at += step) {
            int64_t n = count - at < step ? count - at : step;

            if ((rc = ckpt_source_read(src, index, start + at, n, block, err)) != 0)
                return rc;
            if (memcmp(block, dst + (size_t)at * width, (size_t)n * width) != 0)
                return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: %s values differ between the "
                                 "checkpoints and have no mean", t->name,
                                 ckpt_dtype_name(t->dtype));
        }
    }
    return 0;
}

/* [n] elements, n <= BLOCK, at element start of tensor i; sum is the thread's. */
static int mean_block(const struct average *a, size_t i, int64_t start, size_t n,
                      unsigned char *dst, struct ckpt_err *err)
{
    enum ckpt_dtype to = ckpt_source_tensor(a->view.below, i)->dtype;
    double sum[BLOCK], wide[BLOCK];
    unsigned char raw[BLOCK * 8];
    size_t index;
    int rc;

    memset(sum, 0, n * sizeof *sum);
    for (size_t k = 0; k < a->n; k++) {
        struct ckpt_source *src = source_of(a, k, i, &index);
        enum ckpt_dtype from = ckpt_source_tensor(src, index)->dtype;

        if ((rc = ckpt_source_read(src, index, start, (int64_t)n, raw, err)) != 0)
            return rc;
        ckpt_convert(wide, CKPT_F64, raw, from, n);
        for (size_t e = 0; e < n; e++)
            sum[e] += a->weight[k] * wide[e];
    }
    ckpt_convert(dst, to, sum, CKPT_F64, n);
    return 0;
}

static int average_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                        struct ckpt_err *err)
{
    struct average *a = self;
    const struct ckpt_tensor *t = ckpt_source_tensor(a->view.below, i);
    size_t width = ckpt_dtype_size(t->dtype);
    int rc;

    if (ckpt_dtype_class(t->dtype) != CKPT_CLASS_FLOAT)
        return ckpt_source_read(a->view.below, i, start, count, dst, err)
                   ? ckpt_err_code(err) : compare_rest(a, i, start, count, dst, err);
    for (int64_t at = 0; at < count; at += BLOCK) {
        size_t n = (size_t)(count - at < BLOCK ? count - at : BLOCK);

        if ((rc = mean_block(a, i, start + at, n, (unsigned char *)dst + (size_t)at * width,
                             err)) != 0)
            return rc;
    }
    return 0;
}

static const struct ckpt_source_ops average_ops = {
    .format = "view", .read = average_read, .close = average_close,
};

/* Find the first's tensor i in src, with the same shape; dtypes may differ among floats. */
static int pair(const struct ckpt_source *src, const struct ckpt_tensor *t, size_t k,
                size_t *index, struct ckpt_err *err)
{
    const struct ckpt_tensor *u;
    char x[128], y[128];

    *index = ckpt_source_find(src, t->name);
    if (*index == SIZE_MAX)
        return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: checkpoint %zu of the mean has none",
                         t->name, k + 1);
    u = ckpt_source_tensor(src, *index);
    if (!ckpt_shape_equal(&t->shape, &u->shape))
        return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: checkpoint %zu of the mean has shape "
                         "%s, the first %s", t->name, k + 1,
                         ckpt_shape_text(x, sizeof x, &u->shape),
                         ckpt_shape_text(y, sizeof y, &t->shape));
    if (t->dtype != u->dtype && (ckpt_dtype_class(t->dtype) != CKPT_CLASS_FLOAT ||
                                 ckpt_dtype_class(u->dtype) != CKPT_CLASS_FLOAT))
        return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: checkpoint %zu of the mean has %s, "
                         "the first %s", t->name, k + 1, ckpt_dtype_name(u->dtype),
                         ckpt_dtype_name(t->dtype));
    if (ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT &&
        (!ckpt_convert_can(CKPT_F64, u->dtype) || !ckpt_convert_can(t->dtype, CKPT_F64)))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: no mean of %s", t->name,
                         ckpt_dtype_name(u->dtype));
    return 0;
}

static int pair_all(struct average *a, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(a->view.below);
    int rc;

    for (size_t k = 1; k < a->n; k++) {
        const struct ckpt_source *src = a->other[k - 1];

        if (!(a->index[k - 1] = ckpt_alloc(n, sizeof **a->index)))
            return ckpt_nomem(err, n * sizeof **a->index);
        for (size_t i = 0; i < n; i++)
            if ((rc = pair(src, ckpt_source_tensor(a->view.below, i), k, &a->index[k - 1][i],
                           err)) != 0)
                return rc;
        for (size_t i = 0; ckpt_source_count(src) > n && i < ckpt_source_count(src); i++)
            if (ckpt_source_find(a->view.below, ckpt_source_tensor(src, i)->name) == SIZE_MAX)
                return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: only checkpoint %zu of the "
                                 "mean has it", ckpt_source_tensor(src, i)->name, k + 1);
    }
    return 0;
}

static int set_weights(struct average *a, const double *weight, struct ckpt_err *err)
{
    double sum = 0;

    for (size_t k = 0; k < a->n; k++)
        sum += weight ? weight[k] : 1.0;
    if (!(sum > 0 || sum < 0) || sum - sum != 0)
        return ckpt_fail(err, CKPT_EUSAGE, "the weights of a mean sum to %g", sum);
    for (size_t k = 0; k < a->n; k++)
        a->weight[k] = (weight ? weight[k] : 1.0) / sum;
    return 0;
}

int ckpt_view_average(struct ckpt_source **out, struct ckpt_source **src, size_t n,
                      const double *weight, struct ckpt_err *err)
{
    struct average *a = ckpt_alloc(1, sizeof *a);
    struct ckpt_source **other = ckpt_alloc(n, sizeof *other);
    struct ckpt_tensors list = {0};
    size_t count = ckpt_source_count(src[0]);
    int rc = 0;

    if (!a || !other) {
        ckpt_free(a);
        ckpt_free(other);
        for (size_t k = 0; k < n; k++)
            ckpt_source_close(src[k]);
        *out = NULL;
        return ckpt_nomem(err, n * sizeof *other);
    }
    a->view.below = src[0];
    a->other = other;
    a->n = n;
    for (size_t k = 1; k < n; k++)
        other[k - 1] = src[k];
    *out = NULL;                        /* only now: out may point to a source */
    a->view.map = ckpt_alloc(count, sizeof *a->view.map);
    a->index = ckpt_alloc(n, sizeof *a->index);
    a->weight = ckpt_alloc(n, sizeof *a->weight);
    if (!a->view.map || !a->index || !a->weight)
        rc = ckpt_nomem(err, count * sizeof *a->view.map);
    if (rc == 0)
        rc = set_weights(a, weight, err);
    if (rc == 0)
        rc = pair_all(a, err);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(a->view.below, i);

        rc = view_add(&a->view, &list, i, t->name, t->dtype, err);
    }
    if (rc == 0)
        rc = view_tie(&a->view, &list, err);
    return view_finish(out, &average_ops, &a->view, &list, rc, err);
}
