/* lora/range - see lora/range.h. */
#include "libckpt/lora/range.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/convert.h"

#define BLOCK  65536            /* elements of W updated at a time: rows that fit in the cache */
#define SAMPLE 1024             /* of each block, for what rounding leaves: of all it would take as
                                   long as the products */

/* The updates that touch every element of a stretch of one tensor: at most one per adapter. */
struct touch {
    size_t          n;
    size_t          u[CKPT_LORA_MAX_ADAPTERS];
    struct lora_product use[CKPT_LORA_MAX_ADAPTERS];
};

/* A block of W: the original, as one adapter makes it, and a delta. */
struct work {
    float            w[BLOCK], old[BLOCK], alone[BLOCK], add[BLOCK];
    struct lora_kept kept;
};

static const struct ckpt_tensor *base_tensor(const struct lora *l, size_t base)
{
    return ckpt_source_tensor(l->base, base);
}

int lora_range_start(void *ctx, size_t u, int64_t start, int64_t n, float *w, struct ckpt_err *err)
{
    const struct lora *l = ctx;
    const struct ckpt_lora_update *up = &l->update[u];

    return up->own != CKPT_LORA_NONE
               ? lora_read_as(w, CKPT_F32, l->adapter[up->from], up->own,
                              up->own_first + start, n, err)
               : lora_read_as(w, CKPT_F32, l->base, up->base, start, n, err);
}

void lora_range_of(const struct lora *l, size_t u, int64_t *first, int64_t *end)
{
    const struct ckpt_lora_update *up = &l->update[u];

    *first = up->part.first;
    *end = up->part.n_row ? *first + up->part.n_row * up->part.n_col : INT64_MAX;
}

bool lora_only_adds(const struct ckpt_lora_update *up)
{
    return up->own == CKPT_LORA_NONE && up->magnitude == CKPT_LORA_NONE &&
           up->rows == CKPT_LORA_NONE;
}

/* Adds update k's product and vector to w, elements [start, start + n) of the tensor, through v. */
static int add_delta(struct lora *l, const struct touch *t, size_t k, int64_t start, int64_t n,
                      float *w, float *v, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[t->u[k]];
    float scale = lora_only_adds(up) ? up->scale * up->weight : up->scale;
    int rc;

    if (up->a != CKPT_LORA_NONE)
        lora_add_product(w, &t->use[k], start - up->part.first, n);
    if (up->add == CKPT_LORA_NONE)
        return 0;
    if ((rc = lora_read_as(v, CKPT_F32, l->adapter[up->from], up->add, start, n, err)) != 0)
        return rc;
    for (int64_t j = 0; j < n; j++)
        w[j] += scale * v[j];
    return 0;
}

/* Replace rows of dst by the adapter's own, converted to dtype. */
static int replace_rows(struct lora *l, const struct ckpt_lora_update *up, int64_t start,
                        int64_t count, void *dst, enum ckpt_dtype dtype, struct ckpt_err *err)
{
    int64_t cols = base_tensor(l, up->base)->shape.dim[1];
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < up->n_row; k++) {
        int64_t first = up->row[k] * cols, end = first + cols;
        int64_t lo = first > start ? first : start;
        int64_t hi = end < start + count ? end : start + count;

        if (lo < hi)
            rc = lora_read_as((unsigned char *)dst + (size_t)(lo - start) * ckpt_dtype_size(dtype),
                         dtype, l->adapter[up->from], up->rows, (int64_t)k * cols + lo - first,
                         hi - lo, err);
    }
    return rc;
}

/* w becomes W with update k alone. */
static int alone(struct lora *l, const struct touch *t, size_t k, int64_t start, int64_t n,
                 float *w, float *v, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[t->u[k]];
    int rc;

    if (up->own != CKPT_LORA_NONE &&
        (rc = lora_read_as(w, CKPT_F32, l->adapter[up->from], up->own, up->own_first + start, n,
                           err)) != 0)
        return rc;
    if ((rc = add_delta(l, t, k, start, n, w, v, err)) != 0)
        return rc;
    return up->rows == CKPT_LORA_NONE ? 0 : replace_rows(l, up, start, n, w, CKPT_F32, err);
}

/* work->w becomes W + the weighted deltas; it is W before. */
static int add_up(struct lora *l, const struct touch *t, int64_t start, int64_t n,
                  struct work *work, struct ckpt_err *err)
{
    float *sum = work->w, *old = work->old, *v = work->alone;
    int rc;

    memcpy(old, sum, (size_t)n * sizeof *old);
    for (size_t k = 0; k < t->n; k++) {
        const struct ckpt_lora_update *up = &l->update[t->u[k]];

        if (lora_only_adds(up)) {
            if ((rc = add_delta(l, t, k, start, n, sum, work->add, err)) != 0)
                return rc;
            continue;
        }
        memcpy(v, old, (size_t)n * sizeof *v);
        if ((rc = alone(l, t, k, start, n, v, work->add, err)) != 0)
            return rc;
        for (int64_t j = 0; j < n; j++)
            sum[j] += up->weight * (v[j] - old[j]);
    }
    return 0;
}

/* F64 tensors keep the base's digits: only the delta is computed in f32. */
static int add_to_doubles(struct lora *l, const struct touch *t, int64_t start, int64_t n,
                          unsigned char *p, struct work *work, struct ckpt_err *err)
{
    int rc;

    memset(work->w, 0, (size_t)n * sizeof *work->w);
    for (size_t k = 0; k < t->n; k++)
        if ((rc = add_delta(l, t, k, start, n, work->w, work->add, err)) != 0)
            return rc;
    for (int64_t j = 0; j < n; j++) {
        double v;

        memcpy(&v, p + (size_t)j * sizeof v, sizeof v);
        v += (double)work->w[j];
        memcpy(p + (size_t)j * sizeof v, &v, sizeof v);
    }
    return 0;
}

/* Elements of the next block from `at`: it ends with a row where one ends near. */
static int64_t block_at(const struct lora *l, const struct touch *t, int64_t at, int64_t end)
{
    const struct ckpt_lora_update *up = &l->update[t->u[0]];
    int64_t cols = up->a == CKPT_LORA_NONE ? 0 : t->use[0].n_col;
    int64_t n = end - at < BLOCK ? end - at : BLOCK;
    int64_t over = cols ? (at - up->part.first + n) % cols : 0;

    return at + n < end && over < n ? n - over : n;
}

static int64_t sample_of(int64_t n) { return n < SAMPLE ? n : SAMPLE; }

/* Add to work->kept what the first elements of p, the rounded work->w, have of the change from
 * work->old. */
static void measure(struct work *work, size_t updates, const void *p, enum ckpt_dtype dtype,
                    int64_t n)
{
    const float *w = work->w, *old = work->old, *now = work->add;

    ckpt_convert(work->add, CKPT_F32, p, dtype, (size_t)sample_of(n));
    for (int64_t j = 0; j < sample_of(n); j++) {
        double change = (double)(w[j] - old[j]);

        work->kept.wanted += change * change;
        work->kept.got += change * (double)(now[j] - old[j]);
    }
    work->kept.n += n * (int64_t)updates;
}

/* Bits of the least absolute value that is rounded to infinity. */
static int32_t limit_of(enum ckpt_dtype dtype)
{
    return dtype == CKPT_F16 ? 0x477ff000 : dtype == CKPT_BF16 ? 0x7f7f8000 : 0x7f800000;
}

/*
 * Refuse elements of work->w, n from `at` on, that are to be stored as NaN or infinity and did not
 * start so: the factors have such values, or a scale that is far too large.  delta: they are what
 * is added, not what is stored.
 */
static int check_finite(struct lora *l, const struct lora_item *item, const struct touch *t,
                        int64_t at, int64_t n, bool delta, struct work *work,
                        struct ckpt_err *err)
{
    const struct ckpt_tensor *base = base_tensor(l, item->base);
    int32_t limit = limit_of(base->dtype);
    float *was = work->alone;
    int rc;

    if (!l->update[t->u[0]].finite || lora_largest(work->w, n) < limit)
        return 0;
    if (delta)
        memset(was, 0, (size_t)n * sizeof *was);
    else if ((rc = lora_range_start(l, t->u[0], at, n, was, err)) != 0)
        return rc;
    for (int64_t j = 0; j < n; j++)
        if (lora_largest(&was[j], 1) < limit && lora_largest(&work->w[j], 1) >= limit) {
            ckpt_fail(err, CKPT_EFORMAT, "tensor %s: element %" PRId64 " is %g with the adapter, "
                      "which is no finite %s, and %g without", base->name, at + j,
                      (double)work->w[j], ckpt_dtype_name(base->dtype), (double)was[j]);
            return ckpt_err_hint(err, "the adapter has NaN, infinite or far too large values, or "
                                 "such a lora_alpha; `ckpt-inspect --stats` tells its values");
        }
    return 0;
}

/* dst holds the base's stretch, or nothing yet when the tensor is resized. */
static int update_stretch(struct lora *l, const struct lora_item *item, const struct touch *t,
                          int64_t start, int64_t end, unsigned char *dst, struct work *work,
                          struct ckpt_err *err)
{
    enum ckpt_dtype dtype = base_tensor(l, item->base)->dtype;
    const struct ckpt_lora_update *up = &l->update[t->u[0]];
    bool sole = t->n == 1 && up->weight == 1;
    bool doubles = dtype == CKPT_F64, narrow = ckpt_dtype_size(dtype) < sizeof(float);
    int rc = 0;

    for (size_t k = 0; k < t->n; k++) {
        doubles = doubles && lora_only_adds(&l->update[t->u[k]]);
        narrow = narrow && lora_only_adds(&l->update[t->u[k]]);
    }
    for (int64_t at = start, n; rc == 0 && at < end; at += n) {
        unsigned char *p = dst + (size_t)(at - start) * ckpt_dtype_size(dtype);

        n = block_at(l, t, at, end);
        if (doubles) {
            rc = add_to_doubles(l, t, at, n, p, work, err);
            if (rc == 0)
                rc = check_finite(l, item, t, at, n, true, work, err);
            continue;
        }
        if (!item->resized)
            ckpt_convert(work->w, CKPT_F32, p, dtype, (size_t)n);
        if (narrow && sole)
            memcpy(work->old, work->w, (size_t)sample_of(n) * sizeof *work->old);
        rc = sole ? alone(l, t, 0, at, n, work->w, work->add, err)
                  : add_up(l, t, at, n, work, err);
        if (rc == 0)
            rc = check_finite(l, item, t, at, n, false, work, err);
        if (rc == 0)
            ckpt_convert(p, dtype, work->w, CKPT_F32, (size_t)n);
        if (rc == 0 && narrow)
            measure(work, t->n, p, dtype, n);
    }
    return rc;
}

/* Collect the updates that touch the element at `at`; returns the end, at most `end`, up to
 * which the same ones do. */
static int64_t touched(struct touch *t, const struct lora *l, const struct lora_item *item,
                       int64_t at, int64_t end)
{
    t->n = 0;
    for (size_t u = item->first; u < item->first + item->n; u++) {
        int64_t lo, hi;

        lora_range_of(l, u, &lo, &hi);
        if (at >= lo && at < hi) {
            t->u[t->n++] = u;
            end = hi < end ? hi : end;
        } else if (lo > at && lo < end) {
            end = lo;
        }
    }
    return end;
}

static int update_range(struct lora *l, const struct lora_item *item, int64_t start, int64_t end,
                        unsigned char *dst, struct ckpt_err *err)
{
    size_t width = ckpt_dtype_size(base_tensor(l, item->base)->dtype);
    struct work *work = ckpt_alloc_buffer(sizeof *work);
    int rc = work ? 0 : ckpt_nomem(err, sizeof *work);

    if (rc == 0)
        work->kept = (struct lora_kept){0};
    for (int64_t at = start, next; rc == 0 && at < end; at = next) {
        struct touch t = {0};
        size_t begun = 0;

        next = touched(&t, l, item, at, end);
        for (; rc == 0 && begun < t.n; begun++)
            if (l->update[t.u[begun]].a != CKPT_LORA_NONE)
                rc = lora_factors_begin(&t.use[begun], l->factors, t.u[begun], err);
        if (rc)
            begun--;
        if (rc == 0 && t.n)
            rc = update_stretch(l, item, &t, at, next, dst + (size_t)(at - start) * width, work,
                                err);
        while (begun-- > 0)
            if (l->update[t.u[begun]].a != CKPT_LORA_NONE)
                lora_factors_end(l->factors, t.u[begun]);
    }
    if (rc == 0 && work->kept.n) {
        pthread_mutex_lock(&l->lock);
        l->kept.wanted += work->kept.wanted;
        l->kept.got += work->kept.got;
        l->kept.n += work->kept.n;
        pthread_mutex_unlock(&l->lock);
    }
    ckpt_free(work);
    return rc;
}

/* No delta here: full copies and replaced rows keep the precision they are stored in. */
static int copy_range(struct lora *l, const struct ckpt_lora_update *up, int64_t start,
                      int64_t count, void *dst, struct ckpt_err *err)
{
    enum ckpt_dtype dtype = base_tensor(l, up->base)->dtype;
    int rc = up->own == CKPT_LORA_NONE
                 ? ckpt_source_read(l->base, up->base, start, count, dst, err)
                 : lora_read_as(dst, dtype, l->adapter[up->from], up->own, up->own_first + start,
                                count, err);

    return rc == 0 && up->rows != CKPT_LORA_NONE
               ? replace_rows(l, up, start, count, dst, dtype, err) : rc;
}

int lora_range_read(struct lora *l, size_t i, int64_t start, int64_t count, void *dst,
                    struct ckpt_err *err)
{
    const struct lora_item *item = &l->item[i];
    const struct ckpt_lora_update *up = &l->update[item->first];
    int rc = 0;

    if (item->n == 0)
        return ckpt_source_read(l->base, item->base, start, count, dst, err);
    if (item->n == 1 && up->weight == 1 && up->a == CKPT_LORA_NONE && up->add == CKPT_LORA_NONE)
        return copy_range(l, up, start, count, dst, err);
    if (!item->resized)
        rc = ckpt_source_read(l->base, item->base, start, count, dst, err);
    return rc ? rc : update_range(l, item, start, start + count, dst, err);
}
