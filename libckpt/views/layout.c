/* views/layout - see views/layout.h. */
#include "libckpt/views/layout.h"

#include <string.h>

#define STAGE_BYTES 65536u

struct layout {
    struct ckpt_source *below;
    struct ckpt_layout *row;        /* [n], in the list's arena */
};

static enum ckpt_dtype dtype_of(const struct ckpt_source *below, const struct ckpt_layout *r)
{
    return r->n_part ? ckpt_source_tensor(below, r->part[0].src)->dtype : CKPT_F32;
}

/* Elements of each part. */
static int64_t share(const struct ckpt_layout *r)
{
    int64_t n = 0;

    ckpt_shape_numel(&n, &r->shape);
    return r->n_part ? n / (int64_t)r->n_part : n;
}

static int read_plain(struct layout *l, const struct ckpt_layout *r, int64_t start, int64_t count,
                      unsigned char *dst, struct ckpt_err *err)
{
    size_t width = ckpt_dtype_size(dtype_of(l->below, r));
    int64_t part = share(r);
    int rc;

    while (count > 0) {
        const struct ckpt_layout_part *p = &r->part[start / part];
        int64_t at = start % part, n = count < part - at ? count : part - at;

        if ((rc = ckpt_source_read(l->below, p->src, p->start + at, n, dst, err)) != 0)
            return rc;
        start += n;
        count -= n;
        dst += (size_t)n * width;
    }
    return 0;
}

/* Read row by row, each from its place beneath. */
static int read_rows(struct layout *l, const struct ckpt_layout *r, int64_t start, int64_t count,
                     unsigned char *dst, struct ckpt_err *err)
{
    size_t width = ckpt_dtype_size(dtype_of(l->below, r));
    int64_t row = share(r) / r->shape.dim[0];
    int rc;

    while (count > 0) {
        int64_t i = start / row, at = start % row;
        int64_t k = i % r->c, a = i / r->c % r->a, b = i / r->c / r->a % r->b;
        int64_t o = i / r->c / r->a / r->b;
        int64_t from = ((o * r->a + a) * r->b + b) * r->c + k;
        /* Along c, neighbours are neighbours beneath too. */
        int64_t run = (r->c - k) * row - at, n = count < run ? count : run;

        if ((rc = ckpt_source_read(l->below, r->part[0].src, r->part[0].start + from * row + at,
                                   n, dst, err)) != 0)
            return rc;
        start += n;
        count -= n;
        dst += (size_t)n * width;
    }
    return 0;
}

/*
 * The range lies in rows [r0, r1] of the result, which are columns beneath: from each row beneath
 * a run of those columns is read and scattered.
 */
static int read_transposed(struct layout *l, const struct ckpt_layout *r, int64_t start,
                           int64_t count, unsigned char *dst, struct ckpt_err *err)
{
    size_t width = ckpt_dtype_size(dtype_of(l->below, r));
    int64_t rows = r->shape.dim[0], cols = r->shape.dim[1], end = start + count;
    int64_t step = (int64_t)(STAGE_BYTES / width);
    unsigned char stage[STAGE_BYTES];
    int rc;

    for (int64_t r0 = start / cols; r0 <= (end - 1) / cols; r0 += step) {
        int64_t last = (end - 1) / cols - r0 + 1, n = last < step ? last : step;

        for (int64_t j = 0; j < cols; j++) {
            if ((rc = ckpt_source_read(l->below, r->part[0].src,
                                       r->part[0].start + j * rows + r0, n, stage, err)) != 0)
                return rc;
            for (int64_t k = 0; k < n; k++) {
                int64_t i = (r0 + k) * cols + j;

                if (i >= start && i < end)
                    memcpy(dst + (size_t)(i - start) * width, stage + (size_t)k * width, width);
            }
        }
    }
    return 0;
}

static int layout_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                       struct ckpt_err *err)
{
    struct layout *l = self;
    const struct ckpt_layout *r = &l->row[i];

    if (r->n_part == 0) {
        memcpy(dst, r->value + start, (size_t)count * sizeof *r->value);
        return 0;
    }
    return r->order == CKPT_LAYOUT_PLAIN  ? read_plain(l, r, start, count, dst, err)
           : r->order == CKPT_LAYOUT_ROWS ? read_rows(l, r, start, count, dst, err)
                                          : read_transposed(l, r, start, count, dst, err);
}

static bool layout_locate(void *self, size_t i, int64_t start, int64_t count,
                          struct ckpt_extent *out)
{
    struct layout *l = self;
    const struct ckpt_layout *r = &l->row[i];
    int64_t part = share(r);
    const struct ckpt_layout_part *p;

    if (r->order != CKPT_LAYOUT_PLAIN || r->n_part == 0 ||
        start / part != (start + count - 1) / part)
        return false;
    p = &r->part[start / part];
    return ckpt_source_locate(l->below, p->src, p->start + start % part, count, out);
}

static void layout_close(void *self)
{
    struct layout *l = self;

    ckpt_source_close(l->below);
    ckpt_free(l);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = layout_read, .locate = layout_locate, .close = layout_close,
};

/* Check that every part lies inside its tensor and that a, b, c divide the number of rows. */
static int check_row(const struct ckpt_source *below, const struct ckpt_layout *r,
                     struct ckpt_err *err)
{
    int64_t numel, n;
    bool fits;

    if (!ckpt_shape_numel(&numel, &r->shape))
        return ckpt_fail(err, CKPT_EFORMAT, "tensor %s: its shape is out of range", r->name);
    fits = r->n_part ? numel % (int64_t)r->n_part == 0 : r->value || numel == 0;
    n = fits ? share(r) : 0;
    for (size_t k = 0; fits && k < r->n_part; k++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(below, r->part[k].src);

        fits = t && t->dtype == dtype_of(below, r) && r->part[k].start >= 0 &&
               r->part[k].start <= t->numel && n <= t->numel - r->part[k].start;
    }
    if (fits && r->order != CKPT_LAYOUT_PLAIN)
        fits = r->n_part == 1 && r->shape.rank >= 1;
    if (fits && r->order == CKPT_LAYOUT_TRANSPOSED)
        fits = r->shape.rank == 2;
    if (fits && r->order == CKPT_LAYOUT_ROWS)
        fits = r->a > 0 && r->b > 0 && r->c > 0 && r->a <= INT32_MAX && r->b <= INT32_MAX &&
               r->c <= INT32_MAX / r->a && r->shape.dim[0] % (r->a * r->c) == 0 &&
               r->shape.dim[0] / (r->a * r->c) % r->b == 0;
    return fits ? 0 : ckpt_fail(err, CKPT_ESTATE, "tensor %s: does not fit what lies beneath",
                                r->name);
}

/* Append row i to the list, and copy everything it points to. */
static int add_row(struct layout *l, struct ckpt_tensors *list, size_t i,
                   const struct ckpt_layout *from, struct ckpt_err *err)
{
    struct ckpt_layout *r = &l->row[i];
    struct ckpt_tensor *t;
    int rc;

    if ((rc = check_row(l->below, from, err)) != 0)
        return rc;
    *r = *from;
    if ((rc = ckpt_tensors_add(list, &t, r->name, strlen(r->name), dtype_of(l->below, r),
                               &r->shape, NULL, 0, false, err)) != 0)
        return rc;
    if (r->n_part) {
        struct ckpt_layout_part *part = ckpt_arena_alloc(&list->arena, r->n_part, sizeof *part);

        if (!part)
            return ckpt_nomem(err, r->n_part * sizeof *part);
        memcpy(part, r->part, r->n_part * sizeof *part);
        r->part = part;
        t->kind = ckpt_source_tensor(l->below, part[0].src)->kind;
        for (size_t k = 0; k < r->n_part && !t->unread; k++)
            t->unread = ckpt_source_tensor(l->below, part[k].src)->unread;
    } else if (t->numel > 0) {
        float *value = ckpt_arena_alloc(&list->arena, (size_t)t->numel, sizeof *value);

        if (!value)
            return ckpt_nomem(err, (size_t)t->numel * sizeof *value);
        memcpy(value, r->value, (size_t)t->numel * sizeof *value);
        r->value = value;
    }
    r->name = t->name;
    t->stored = r->stored;
    t->stored_bytes = r->stored_bytes;
    return 0;
}

int ckpt_view_layout(struct ckpt_source **out, struct ckpt_source *src,
                     const struct ckpt_layout *row, size_t n_row, json_t *info,
                     struct ckpt_err *err)
{
    struct layout *l = ckpt_alloc(1, sizeof *l);
    struct ckpt_tensors list = {0};
    const struct ckpt_extra *extra;
    size_t n_extra = ckpt_source_extras(src, &extra);
    int rc = 0;

    *out = NULL;
    if (!info)
        info = json_incref((json_t *)ckpt_source_info(src));
    if (!l || !(l->row = ckpt_arena_alloc(&list.arena, n_row, sizeof *l->row)))
        rc = ckpt_nomem(err, n_row * sizeof *l->row);
    if (l)
        l->below = src;
    for (size_t i = 0; rc == 0 && i < n_row; i++)
        rc = add_row(l, &list, i, &row[i], err);
    if (rc == 0)
        return ckpt_source_new(out, &ops, l, &list, extra, n_extra, info, err);
    json_decref(info);
    ckpt_tensors_release(&list);
    ckpt_source_close(src);
    ckpt_free(l);
    return rc;
}
