/*
 * fragment - see fragment.h.  Only here does a box become bytes.
 *
 * A range of elements is at most 2 * rank - 1 boxes; the intersection of a box with a fragment is
 * a box again, and reading that is a copy between two strided arrays, one of them in a file.
 * Axes that are dense on both sides are merged first, so that the usual tensor is a single read.
 */
#include "libckpt/fragment.h"

#include <string.h>

#include "libckpt/mem.h"

#define STAGE_BYTES  65536u     /* buffer for scattered elements */
#define DIRECT_BYTES 4096u      /* shorter runs cost more in calls than copying costs */
#define GAP_BYTES    4096u      /* unwanted bytes up to this many are read rather than skipped */

/* One axis of a box that is read from file to memory; strides in elements. */
struct axis {
    int64_t count, mem, file;
};

/* A box of one fragment, ready to be read. */
struct transfer {
    const struct ckpt_fragment *f;
    const struct ckpt_box      *box;        /* that f covers */
    enum ckpt_dtype             dtype;
    size_t                      width;
    int64_t                     mem;        /* first element, counted from the range's start */
    unsigned char              *dst;        /* where it goes */
    uint64_t                    offset;     /* in the file, of the first element */
    struct axis                 axis[CKPT_MAX_RANK];    /* innermost in memory first */
    int                         n;          /* >= 1 */
};

struct ckpt_box *ckpt_fragment_box(struct ckpt_arena *arena, int rank, const int64_t *start,
                                   const int64_t *count)
{
    struct ckpt_box *b = ckpt_arena_alloc(arena, 1, sizeof *b);

    for (int d = 0; b && d < rank; d++) {
        b->start[d] = start ? start[d] : 0;
        b->count[d] = count[d];
    }
    return b;
}

static struct ckpt_box box_of(const struct ckpt_shape *shape)
{
    struct ckpt_box b = {0};

    memcpy(b.count, shape->dim, (size_t)shape->rank * sizeof *b.count);
    return b;
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Row-major strides of the tensor, in elements. */
static void rows_of(int64_t row[CKPT_MAX_RANK], const struct ckpt_shape *shape)
{
    int64_t n = 1;

    for (int d = shape->rank; d-- > 0; n *= shape->dim[d])
        row[d] = n;
}

/* The largest box that begins with element at and ends before end.  Returns its element count. */
static int64_t first_box(struct ckpt_box *b, const struct ckpt_shape *shape, int64_t at,
                         int64_t end)
{
    int64_t rest = at, inner = 1;       /* inner: elements of the axes covered in full so far */

    for (int d = shape->rank; d-- > 0; rest /= shape->dim[d]) {
        b->start[d] = rest % shape->dim[d];
        b->count[d] = 1;
    }
    for (int d = shape->rank; d-- > 0;) {
        b->count[d] = min64(shape->dim[d] - b->start[d], (end - at) / inner);
        if (b->count[d] < shape->dim[d])
            return inner * b->count[d];
        inner *= shape->dim[d];
    }
    return inner;
}

/* The intersection of a and b; false when it is empty. */
static bool common(struct ckpt_box *out, int rank, const struct ckpt_box *a,
                   const struct ckpt_box *b)
{
    for (int d = 0; d < rank; d++) {
        int64_t lo = max64(a->start[d], b->start[d]);
        int64_t hi = min64(a->start[d] + a->count[d], b->start[d] + b->count[d]);

        if (lo >= hi)
            return false;
        out->start[d] = lo;
        out->count[d] = hi - lo;
    }
    return true;
}

/*
 * Plan the read of box, which lies inside the fragment, into memory whose first element is
 * element `start` of the tensor.  Returns the element count of the box.
 */
static int64_t plan(struct transfer *t, const struct ckpt_shape *shape,
                    const struct ckpt_box *box, int64_t start)
{
    int64_t row[CKPT_MAX_RANK], in_box = 1, total = 1, file = 0;

    rows_of(row, shape);
    t->n = 0;
    t->mem = -start;
    for (int d = shape->rank; d-- > 0;) {
        struct axis a = {box->count[d], row[d], t->f->stride ? t->f->stride[d] : in_box};
        struct axis *last = t->n ? &t->axis[t->n - 1] : NULL;

        in_box *= t->box->count[d];
        total *= a.count;
        t->mem += box->start[d] * a.mem;
        file += (box->start[d] - t->box->start[d]) * a.file;
        if (a.count == 1)
            continue;
        if (last && a.mem == last->mem * last->count && a.file == last->file * last->count)
            last->count *= a.count;
        else
            t->axis[t->n++] = a;
    }
    if (t->n == 0)
        t->axis[t->n++] = (struct axis){1, 1, 1};
    t->offset = t->f->offset + (uint64_t)file * t->width;
    return total;
}

static void swap_bytes(unsigned char *p, int64_t n, enum ckpt_dtype dtype)
{
    size_t width = ckpt_dtype_size(dtype);

    if (ckpt_dtype_class(dtype) == CKPT_CLASS_COMPLEX) {
        width /= 2;                     /* complex: each part is swapped separately */
        n *= 2;
    }
    for (int64_t i = 0; width > 1 && i < n; i++, p += width)
        for (size_t k = 0; k < width / 2; k++) {
            unsigned char b = p[k];

            p[k] = p[width - 1 - k];
            p[width - 1 - k] = b;
        }
}

/*
 * Swap, negate, conjugate.  In little-endian order a float's sign is in its last byte; a complex
 * number's imaginary sign is in the last byte, its real sign in the last of the first half.
 */
static void finish(unsigned char *p, int64_t n, const struct ckpt_fragment *f,
                   enum ckpt_dtype dtype)
{
    size_t width = ckpt_dtype_size(dtype);
    bool complex = ckpt_dtype_class(dtype) == CKPT_CLASS_COMPLEX;
    bool last = f->negated != (complex && f->conjugated), middle = complex && f->negated;

    if (f->swapped)
        swap_bytes(p, n, dtype);
    for (int64_t i = 0; last && i < n; i++)
        p[(size_t)i * width + width - 1] ^= 0x80;
    for (int64_t i = 0; middle && i < n; i++)
        p[(size_t)i * width + width / 2 - 1] ^= 0x80;
}

static bool as_it_lies(const struct ckpt_fragment *f)
{
    return !f->swapped && !f->negated && !f->conjugated;
}

/* Advance an odometer over axes `from` and up; false when it wraps to zero. */
static bool step(int64_t at[CKPT_MAX_RANK], const struct axis *a, int from, int n)
{
    for (int d = from; d < n; d++) {
        if (++at[d] < a[d].count)
            return true;
        at[d] = 0;
    }
    return false;
}

/* Read runs that are dense on both sides, straight into place. */
static int read_direct(const struct transfer *t, struct ckpt_err *err)
{
    int64_t at[CKPT_MAX_RANK] = {0}, run = t->axis[0].count;
    int rc;

    do {
        int64_t mem = 0, file = 0;

        for (int d = 1; d < t->n; d++) {
            mem += at[d] * t->axis[d].mem;
            file += at[d] * t->axis[d].file;
        }
        rc = ckpt_file_read_at(t->f->file, t->dst + (size_t)mem * t->width, (size_t)run * t->width,
                               t->offset + (uint64_t)file * t->width, err);
        if (rc)
            return rc;
        finish(t->dst + (size_t)mem * t->width, run, t->f, t->dtype);
    } while (step(at, t->axis, 1, t->n));
    return 0;
}

/* Copy n elements that are strided on either side.  Fixed widths let the compiler use registers. */
static void spread(unsigned char *dst, size_t to, const unsigned char *src, size_t from,
                   int64_t n, size_t width)
{
    switch (width) {
    case 1: for (; n > 0; n--, dst += to, src += from) *dst = *src; break;
    case 2: for (; n > 0; n--, dst += to, src += from) memcpy(dst, src, 2); break;
    case 4: for (; n > 0; n--, dst += to, src += from) memcpy(dst, src, 4); break;
    case 8: for (; n > 0; n--, dst += to, src += from) memcpy(dst, src, 8); break;
    default: for (; n > 0; n--, dst += to, src += from) memcpy(dst, src, width); break;
    }
}

/* Sort axes by stride, in memory or in the file; a stable sort, so that the order is unique. */
static void sort_axes(struct axis *a, int n, bool by_mem)
{
    for (int d = 1; d < n; d++) {
        struct axis x = a[d];
        int p = d;

        for (; p > 0 && (by_mem ? a[p - 1].mem > x.mem : a[p - 1].file > x.file); p--)
            a[p] = a[p - 1];
        a[p] = x;
    }
}

/* From the stage to the elements' places, in memory order, since the reads hit the cache. */
static void scatter(const struct transfer *t, unsigned char *dst, const unsigned char *stage,
                    struct axis *a, int n)
{
    int64_t at[CKPT_MAX_RANK] = {0};
    size_t w = t->width;

    sort_axes(a, n, true);
    do {
        unsigned char *to = dst;
        const unsigned char *from = stage;

        for (int d = 1; d < n; d++) {
            to += (size_t)(at[d] * a[d].mem) * w;
            from += (size_t)(at[d] * a[d].file) * w;
        }
        if (a[0].mem == 1 && a[0].file == 1)
            memcpy(to, from, (size_t)a[0].count * w);
        else
            spread(to, (size_t)a[0].mem * w, from, (size_t)a[0].file * w, a[0].count, w);
        for (int64_t i = 0; !as_it_lies(t->f) && i < a[0].count; i++)
            finish(to + (size_t)(i * a[0].mem) * w, 1, t->f, t->dtype);
    } while (step(at, a, 1, n));
}

/* How a box is cut into reads of at most a stage. */
struct staging {
    struct axis axis[CKPT_MAX_RANK];    /* sorted by stride in the file */
    int         n;                      /* of them */
    int         whole;                  /* number of first axes that are read in full each time */
    int64_t     span;                   /* elements of the file that those axes span */
    int64_t     portion;                /* how many steps of the next axis one read takes */
    int64_t     pitch;                  /* elements of the stage between those steps */
    bool        skips_gaps;             /* between the steps: one read for each of them */
};

static void plan_staging(struct staging *s, const struct transfer *t)
{
    int64_t limit = (int64_t)(STAGE_BYTES / t->width), gap = (int64_t)(GAP_BYTES / t->width);
    const struct axis *a = s->axis;

    memcpy(s->axis, t->axis, sizeof s->axis);
    s->n = t->n;
    sort_axes(s->axis, s->n, false);
    s->span = 1;
    for (s->whole = 0; s->whole < s->n; s->whole++) {
        const struct axis *x = &a[s->whole];

        if (x->file - s->span > gap || (x->count - 1) * x->file > limit - s->span)
            break;
        s->span += (x->count - 1) * x->file;
    }
    if (s->whole == s->n)
        return;
    s->skips_gaps = a[s->whole].file - s->span > gap;
    s->pitch = s->skips_gaps ? s->span : a[s->whole].file;
    s->portion = 1 + (limit - s->span) / s->pitch;    /* pitch 0: the whole box would have fitted */
}

/* Fill the stage with n steps, beginning at element `file`. */
static int fill(const struct transfer *t, const struct staging *s, unsigned char *stage,
                int64_t file, int64_t n, struct ckpt_err *err)
{
    uint64_t from = t->offset + (uint64_t)file * t->width;
    size_t bytes = (size_t)s->span * t->width;
    int rc;

    if (!s->skips_gaps)
        return ckpt_file_read_at(t->f->file, stage,
                                 bytes + (size_t)((n - 1) * s->pitch) * t->width, from, err);
    for (int64_t i = 0; i < n; i++, from += (uint64_t)s->axis[s->whole].file * t->width)
        if ((rc = ckpt_file_read_at(t->f->file, stage + (size_t)i * bytes, bytes, from,
                                    err)) != 0)
            return rc;
    return 0;
}

/*
 * Elements that are scattered on either side: each read covers as many axes, in file order, as
 * span at most a stage; the next axis is read in groups of steps, the others step by step.
 */
static int read_staged(const struct transfer *t, unsigned char *stage, struct ckpt_err *err)
{
    int64_t at[CKPT_MAX_RANK] = {0};
    struct staging s = {0};
    int k, rc;

    plan_staging(&s, t);
    k = s.whole;
    do {
        int64_t mem = 0, file = 0, n = 1;
        struct axis part[CKPT_MAX_RANK];

        for (int d = k; d < s.n; d++) {
            mem += at[d] * s.axis[d].mem;
            file += at[d] * s.axis[d].file;
        }
        memcpy(part, s.axis, sizeof part);
        if (k < s.n) {
            n = min64(s.portion, s.axis[k].count - at[k]);
            part[k].count = n;
            part[k].file = s.pitch;
            at[k] += n - 1;             /* the odometer advances the last step itself */
        }
        if ((rc = fill(t, &s, stage, file, n, err)) != 0)
            return rc;
        scatter(t, t->dst + (size_t)mem * t->width, stage, part, k < s.n ? k + 1 : k);
    } while (step(at, s.axis, k, s.n));
    return 0;
}

static int read_box(const struct transfer *t, unsigned char **stage, struct ckpt_err *err)
{
    const struct axis *a = &t->axis[0];

    if (a->mem == 1 && a->file == 1 &&
        (t->n == 1 || (uint64_t)a->count * t->width >= DIRECT_BYTES))
        return read_direct(t, err);
    if (!*stage && !(*stage = ckpt_alloc_buffer(STAGE_BYTES)))
        return ckpt_nomem(err, STAGE_BYTES);
    return read_staged(t, *stage, err);
}

/*
 * Where to start searching for the piece of element `flat`: exact when the pieces are sorted by
 * first element, otherwise any start will do.
 */
static size_t look_from(const struct ckpt_shape *shape, const struct ckpt_fragment *frag,
                        size_t n, int64_t flat)
{
    int64_t row[CKPT_MAX_RANK];
    size_t lo = 0, hi = n;

    rows_of(row, shape);
    while (n > 1 && lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct ckpt_box *b = frag[mid].box;
        int64_t last = 0;

        for (int d = 0; d < shape->rank; d++)
            last += (b ? b->start[d] + b->count[d] - 1 : shape->dim[d] - 1) * row[d];
        if (last < flat)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < n ? lo : 0;
}

int ckpt_fragment_gather(void *dst, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                const struct ckpt_fragment *frag, size_t n_frag, int64_t start, int64_t count,
                struct ckpt_err *err)
{
    struct transfer t = {.dtype = dtype, .width = ckpt_dtype_size(dtype)};
    struct ckpt_box whole = box_of(shape);
    unsigned char *stage = NULL;
    int rc = 0;

    for (int64_t at = start; rc == 0 && at < start + count;) {
        struct ckpt_box box, part;
        int64_t left = first_box(&box, shape, at, start + count), all = left;
        size_t from = look_from(shape, frag, n_frag, at);

        /* The pieces are disjoint, so the box is complete when the counts add up. */
        for (size_t i = 0; rc == 0 && left > 0 && i < n_frag; i++) {
            t.f = &frag[from + i < n_frag ? from + i : from + i - n_frag];
            t.box = t.f->box ? t.f->box : &whole;
            if (!common(&part, shape->rank, &box, t.box))
                continue;
            left -= plan(&t, shape, &part, start);
            t.dst = (unsigned char *)dst + (size_t)t.mem * t.width;
            rc = read_box(&t, &stage, err);
        }
        if (rc == 0 && left > 0)
            rc = ckpt_fail_as(err, CKPT_EFORMAT, "hole",
                              "%lld of %lld elements from %lld on lie in no piece",
                              (long long)left, (long long)all, (long long)at);
        at += all;
    }
    ckpt_free(stage);
    return rc;
}

/* Whether all of [start, end) lies contiguously in f, and at which offset. */
static bool locate_in(uint64_t *offset, const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                      const struct ckpt_fragment *f, int64_t start, int64_t end)
{
    struct ckpt_box whole = box_of(shape);
    struct transfer t = {.f = f, .box = f->box ? f->box : &whole, .dtype = dtype,
                         .width = ckpt_dtype_size(dtype)};

    for (int64_t at = start; at < end;) {
        struct ckpt_box box, part;
        int64_t n = first_box(&box, shape, at, end);

        if (!common(&part, shape->rank, &box, t.box) ||
            plan(&t, shape, &part, start) != n || t.n != 1 || t.axis[0].mem != 1 ||
            t.axis[0].file != 1)
            return false;
        if (at == start)
            *offset = t.offset;
        else if (t.offset != *offset + (uint64_t)(at - start) * t.width)
            return false;
        at += n;
    }
    return true;
}

bool ckpt_fragment_locate(struct ckpt_extent *out, const struct ckpt_shape *shape,
                          enum ckpt_dtype dtype, const struct ckpt_fragment *frag, size_t n_frag,
                          int64_t start, int64_t count)
{
    struct ckpt_box first, part;
    size_t from;

    if (count <= 0 || n_frag == 0)
        return false;
    first_box(&first, shape, start, start + 1);
    from = look_from(shape, frag, n_frag, start);
    for (size_t i = 0; i < n_frag; i++) {
        const struct ckpt_fragment *f = &frag[from + i < n_frag ? from + i : from + i - n_frag];

        if (f->box && !common(&part, shape->rank, &first, f->box))
            continue;
        out->file = f->file;            /* [start, end) starts in exactly one piece */
        return as_it_lies(f) && locate_in(&out->offset, shape, dtype, f, start, start + count);
    }
    return false;
}
