/* fragment - see fragment.h.  The one place where a box becomes bytes. */
#include "libckpt/fragment.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"

#define STAGE_BYTES 65536u
#define NEAR_BYTES  4096u       /* elements closer than this are read together and picked */

/*
 * A fragment as runs: pieces that are contiguous in file and in memory.  A run covers part of
 * axis `axis` and all of the axes behind it; outer axes are walked by an odometer.
 */
struct runs {
    int     axis;               /* -1: the whole tensor is one element */
    int64_t len;                /* elements of a run */
    int64_t row[CKPT_MAX_RANK]; /* elements of the tensor between neighbours on an axis */
    int64_t step[CKPT_MAX_RANK];/* elements of the file between neighbours on an axis */
};

static void find_runs(struct runs *r, const struct ckpt_shape *shape,
                      const struct ckpt_fragment *f)
{
    int64_t in_tensor = 1, in_box = 1;

    memset(r, 0, sizeof *r);
    for (int d = shape->rank; d-- > 0;) {
        r->row[d] = in_tensor;
        r->step[d] = f->stride ? f->stride[d] : in_box;
        in_tensor *= shape->dim[d];
        in_box *= f->box.count[d];
    }
    r->axis = shape->rank - 1;
    r->len = shape->rank ? f->box.count[r->axis] : 1;
    /* Axes covered whole join the run of the axis in front of them. */
    while (r->axis > 0 && f->box.count[r->axis] == shape->dim[r->axis] &&
           r->step[shape->rank - 1] == 1 &&
           r->step[r->axis - 1] == r->step[r->axis] * f->box.count[r->axis])
        r->len *= f->box.count[--r->axis];
}

static void swap_bytes(unsigned char *p, int64_t n, enum ckpt_dtype dtype)
{
    size_t width = ckpt_dtype_size(dtype);

    if (ckpt_dtype_class(dtype) == CKPT_CLASS_COMPLEX) {
        width /= 2;                     /* real and imaginary parts on their own */
        n *= 2;
    }
    for (int64_t i = 0; width > 1 && i < n; i++, p += width)
        for (size_t k = 0; k < width / 2; k++) {
            unsigned char t = p[k];

            p[k] = p[width - 1 - k];
            p[width - 1 - k] = t;
        }
}

/* n elements that lie stride elements apart in the file. */
static int read_spread(unsigned char *dst, const struct ckpt_fragment *f, uint64_t at, int64_t n,
                       int64_t stride, size_t width, struct ckpt_err *err)
{
    unsigned char stage[STAGE_BYTES];
    uint64_t apart = (uint64_t)stride * width;
    int64_t together = apart < NEAR_BYTES ? (int64_t)((STAGE_BYTES - width) / (apart ? apart : 1))
                                          : 0;

    if (apart == 0) {                   /* an expanded axis: one element, many times */
        if (ckpt_file_read_at(f->file, dst, width, at, err))
            return err->code;
        for (int64_t i = 1; i < n; i++)
            memcpy(dst + (size_t)i * width, dst, width);
        return 0;
    }
    for (int64_t i = 0; i < n;) {
        int64_t k = n - i < together + 1 ? n - i : together + 1;

        if (ckpt_file_read_at(f->file, stage, (size_t)(k - 1) * apart + width,
                              at + (uint64_t)i * apart, err))
            return err->code;
        for (int64_t j = 0; j < k; j++)
            memcpy(dst + (size_t)(i + j) * width, stage + (size_t)j * apart, width);
        i += k;
    }
    return 0;
}

/*
 * Elements [start, end) of the tensor that the run at flat position `flat` covers.  dst is where
 * element `start` goes; from is the run's first element in the file.
 */
static int read_run(unsigned char *dst, const struct ckpt_fragment *f, enum ckpt_dtype dtype,
                    int64_t flat, int64_t len, uint64_t from, int64_t spread, int64_t start,
                    int64_t end, struct ckpt_err *err)
{
    int64_t lo = flat > start ? flat : start, hi = flat + len < end ? flat + len : end;
    size_t width = ckpt_dtype_size(dtype);
    unsigned char *to;
    uint64_t at;
    int rc;

    if (lo >= hi)
        return 0;
    to = dst + (size_t)(lo - start) * width;
    at = from + (uint64_t)(lo - flat) * (uint64_t)spread * width;
    rc = spread == 1 ? ckpt_file_read_at(f->file, to, (size_t)(hi - lo) * width, at, err)
                     : read_spread(to, f, at, hi - lo, spread, width, err);
    if (rc == 0 && f->swapped)
        swap_bytes(to, hi - lo, dtype);
    return rc;
}

/* What of one fragment lies in [start, end). */
static int gather_one(unsigned char *dst, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                      const struct ckpt_fragment *f, int64_t start, int64_t end,
                      struct ckpt_err *err)
{
    int64_t at[CKPT_MAX_RANK] = {0};    /* odometer over the outer axes, in the box */
    size_t width = ckpt_dtype_size(dtype);
    struct runs r;
    int d;

    find_runs(&r, shape, f);
    if (shape->rank == 0)
        return read_run(dst, f, dtype, 0, 1, f->offset, 1, start, end, err);
    if (r.axis > 0) {                   /* skip what lies before the range on axis 0 */
        int64_t first = start / r.row[0] - f->box.start[0];

        if (first >= f->box.count[0])
            return 0;
        at[0] = first > 0 ? first : 0;
    }
    do {
        int64_t flat = 0, file = 0;

        for (d = 0; d < shape->rank; d++) {
            flat += (f->box.start[d] + (d < r.axis ? at[d] : 0)) * r.row[d];
            file += d < r.axis ? at[d] * r.step[d] : 0;
        }
        if (flat >= end)
            return 0;
        if (read_run(dst, f, dtype, flat, r.len, f->offset + (uint64_t)file * width,
                     r.step[shape->rank - 1], start, end, err))
            return err->code;
        for (d = r.axis - 1; d >= 0 && ++at[d] == f->box.count[d]; d--)
            at[d] = 0;
    } while (d >= 0);
    return 0;
}

int ckpt_gather(void *dst, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                const struct ckpt_fragment *frag, size_t n_frag, int64_t start, int64_t count,
                struct ckpt_err *err)
{
    for (size_t i = 0; i < n_frag; i++)
        if (gather_one(dst, shape, dtype, &frag[i], start, start + count, err))
            return err->code;
    return 0;
}

bool ckpt_locate(struct ckpt_extent *out, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                 const struct ckpt_fragment *frag, size_t n_frag, int64_t start, int64_t count)
{
    for (size_t i = 0; i < n_frag; i++) {
        const struct ckpt_fragment *f = &frag[i];
        int64_t flat = 0;
        struct runs r;

        find_runs(&r, shape, f);
        if (r.axis > 0 || f->swapped || (shape->rank > 0 && r.step[shape->rank - 1] != 1))
            continue;                   /* more than one run: a range may straddle two */
        for (int d = 0; d < shape->rank; d++)
            flat += f->box.start[d] * r.row[d];
        if (start < flat || start + count > flat + r.len)
            continue;
        out->file = f->file;
        out->offset = f->offset + (uint64_t)(start - flat) * ckpt_dtype_size(dtype);
        return true;
    }
    return false;
}

/* Inside the shape, and inside the file. */
static int check_bounds(const struct ckpt_shape *shape, size_t width,
                        const struct ckpt_fragment *f, int64_t *volume, struct ckpt_err *err)
{
    uint64_t last = 0, cover = 1, end, part;    /* last: element of the file furthest out */

    for (int d = shape->rank; d-- > 0;) {
        int64_t start = f->box.start[d], count = f->box.count[d];

        if (start < 0 || count < 1 || start > shape->dim[d] || count > shape->dim[d] - start)
            return ckpt_fail_as(err, CKPT_EFORMAT, "bounds",
                                "a piece covers [%lld, +%lld) of an axis of %lld",
                                (long long)start, (long long)count, (long long)shape->dim[d]);
        if (f->stride && f->stride[d] < 0)
            return ckpt_fail_as(err, CKPT_EFORMAT, "bounds", "a stride is %lld",
                                (long long)f->stride[d]);
        if (f->stride && (!ckpt_mul(&part, (uint64_t)(count - 1), (uint64_t)f->stride[d]) ||
                          !ckpt_add(&last, last, part)))
            return ckpt_fail_as(err, CKPT_EFORMAT, "bounds", "strides overflow");
        cover *= (uint64_t)count;       /* cannot overflow: at most the shape's own count */
    }
    *volume = (int64_t)cover;
    if (!f->stride)
        last = cover - 1;
    if (!ckpt_mul(&end, last, width) || !ckpt_add(&end, end, width) ||
        !ckpt_add(&end, end, f->offset) || end > ckpt_file_size(f->file))
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated",
                            "%s: %llu elements at offset %llu do not fit into %llu bytes",
                            ckpt_file_name(f->file), (unsigned long long)cover,
                            (unsigned long long)f->offset,
                            (unsigned long long)ckpt_file_size(f->file));
    return 0;
}

struct order {
    const struct ckpt_fragment *f;
    int                         axis;
};

static int by_start(const void *a, const void *b)
{
    const struct order *x = a, *y = b;
    int64_t s = x->f->box.start[x->axis], t = y->f->box.start[y->axis];

    return s < t ? -1 : s > t ? 1 : 0;
}

static bool overlap(const struct ckpt_shape *shape, const struct ckpt_box *a,
                    const struct ckpt_box *b)
{
    for (int d = 0; d < shape->rank; d++)
        if (a->start[d] >= b->start[d] + b->count[d] || b->start[d] >= a->start[d] + a->count[d])
            return false;
    return true;
}

/* The axis along which the boxes differ most: the sweep then compares the fewest pairs. */
static int sweep_axis(const struct ckpt_shape *shape, const struct ckpt_fragment *frag, size_t n)
{
    int best = 0;
    size_t most = 0;

    for (int d = 0; d < shape->rank; d++) {
        size_t differ = 0;

        for (size_t i = 0; i < n; i++)
            differ += frag[i].box.start[d] != frag[0].box.start[d];
        if (differ > most) {
            most = differ;
            best = d;
        }
    }
    return best;
}

int ckpt_fragments_check(const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                         const struct ckpt_fragment *frag, size_t n_frag, struct ckpt_err *err)
{
    int64_t numel, volume = 0, covered = 0;
    struct order *order;
    int axis, rc = 0;

    if (!ckpt_shape_numel(&numel, shape) || ckpt_dtype_size(dtype) == 0)
        return ckpt_fail(err, CKPT_EFORMAT, "shape or dtype cannot be read");
    if (numel == 0)
        return n_frag == 0 ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "overlap",
                                              "an empty tensor has %zu pieces", n_frag);
    for (size_t i = 0; i < n_frag; i++) {
        if (check_bounds(shape, ckpt_dtype_size(dtype), &frag[i], &volume, err))
            return err->code;
        if (__builtin_add_overflow(covered, volume, &covered))
            covered = INT64_MAX;
    }
    if (covered != numel)
        return ckpt_fail_as(err, CKPT_EFORMAT, covered < numel ? "hole" : "overlap",
                            "pieces cover %lld elements, the tensor has %lld", (long long)covered,
                            (long long)numel);
    if (n_frag == 1)
        return 0;
    order = ckpt_alloc(n_frag, sizeof *order);
    if (!order)
        return ckpt_nomem(err, n_frag * sizeof *order);
    axis = sweep_axis(shape, frag, n_frag);
    for (size_t i = 0; i < n_frag; i++)
        order[i] = (struct order){&frag[i], axis};
    qsort(order, n_frag, sizeof *order, by_start);
    for (size_t i = 0; rc == 0 && i < n_frag; i++) {
        const struct ckpt_box *a = &order[i].f->box;

        for (size_t j = i + 1;
             j < n_frag && order[j].f->box.start[axis] < a->start[axis] + a->count[axis]; j++)
            if (overlap(shape, a, &order[j].f->box)) {
                rc = ckpt_fail_as(err, CKPT_EFORMAT, "overlap", "two pieces cover element %lld "
                                  "of axis %d", (long long)order[j].f->box.start[axis], axis);
                break;
            }
    }
    ckpt_free(order);
    return rc;
}
