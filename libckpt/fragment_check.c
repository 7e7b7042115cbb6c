/*
 * fragment_check - the proof that pieces tile a tensor; see fragment.h.
 *
 * Give every box a weight at its corners: the product over the axes of +1 at its start and -1 at
 * its end.  These weights are the differences of "how many boxes cover this element", and
 * differences determine a bounded function; so the boxes cover each element exactly once if and
 * only if their corner weights add up to those of the whole.  Sorting the corners decides this in
 * n log n, and the first corner whose weights do not add up is the first element covered wrongly.
 */
#include <stdlib.h>

#include "libckpt/fragment.h"
#include "libckpt/mem.h"

#define MAX_CORNERS ((size_t)1 << 22)   /* 32 MiB; enough for a million pieces of a two-axis cut */

struct corner {
    uint32_t piece;             /* piece number; n_frag: the whole tensor */
    uint32_t ends;              /* bit k: the end on axis[k], otherwise its start */
};

struct cut {
    const struct ckpt_shape    *shape;
    const struct ckpt_fragment *frag;
    size_t                      n_frag;
    int                         axis[CKPT_MAX_RANK];    /* axes that are cut by some piece */
    int                         n_axis;
};

static int64_t start_of(const struct ckpt_fragment *f, int d)
{
    return f->box ? f->box->start[d] : 0;
}

static int64_t count_of(const struct ckpt_fragment *f, const struct ckpt_shape *shape, int d)
{
    return f->box ? f->box->count[d] : shape->dim[d];
}

/* The box lies inside the shape, and its bytes inside the file. */
static int check_bounds(const struct ckpt_shape *shape, size_t width,
                        const struct ckpt_fragment *f, struct ckpt_err *err)
{
    uint64_t last = 0, cover = 1, end, part;    /* last: offset of the last element in the file,
                                                   in elements */

    for (int d = shape->rank; d-- > 0;) {
        int64_t start = start_of(f, d), count = count_of(f, shape, d);

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
        cover *= (uint64_t)count;       /* cannot overflow: at most the shape's element count */
    }
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

static void find_cut_axes(struct cut *c)
{
    for (int d = 0; d < c->shape->rank; d++)
        for (size_t i = 0; i < c->n_frag; i++)
            if (count_of(&c->frag[i], c->shape, d) != c->shape->dim[d]) {
                c->axis[c->n_axis++] = d;
                break;
            }
}

/* The usual case, which needs no memory: at most one axis is cut, and the pieces are in order. */
static bool tile_in_order(const struct cut *c)
{
    int64_t at = 0;

    if (c->n_axis != 1)
        return c->n_axis == 0 && c->n_frag == 1;
    for (size_t i = 0; i < c->n_frag; i++) {
        if (start_of(&c->frag[i], c->axis[0]) != at)
            return false;
        at += count_of(&c->frag[i], c->shape, c->axis[0]);
    }
    return at == c->shape->dim[c->axis[0]];
}

static int64_t coordinate(const struct cut *c, const struct corner *k, int i)
{
    int d = c->axis[i];
    bool end = k->ends >> i & 1u;

    if (k->piece == c->n_frag)
        return end ? c->shape->dim[d] : 0;
    return start_of(&c->frag[k->piece], d) +
           (end ? count_of(&c->frag[k->piece], c->shape, d) : 0);
}

static int compare(const void *a, const void *b, void *ctx)
{
    const struct cut *c = ctx;

    for (int i = 0; i < c->n_axis; i++) {
        int64_t x = coordinate(c, a, i), y = coordinate(c, b, i);

        if (x != y)
            return x < y ? -1 : 1;
    }
    return 0;
}

/* Report the element at a corner, which is covered 1 + excess times. */
static int told(const struct cut *c, const struct corner *k, int64_t excess,
                struct ckpt_err *err)
{
    struct ckpt_shape at = {.rank = c->shape->rank};
    char text[256];

    for (int i = 0; i < c->n_axis; i++)
        at.dim[c->axis[i]] = coordinate(c, k, i);
    ckpt_shape_text(text, sizeof text, &at);
    if (excess < 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "hole", "element %s lies in none of %zu pieces",
                            text, c->n_frag);
    return ckpt_fail_as(err, CKPT_EFORMAT, "overlap", "element %s lies in %lld pieces", text,
                        (long long)excess + 1);
}

static int check_corners(struct cut *c, struct ckpt_err *err)
{
    size_t n = 0, each = (size_t)1 << c->n_axis;
    struct corner *k;
    int rc = 0;

    if (c->n_frag + 1 > MAX_CORNERS / each)
        return ckpt_fail(err, CKPT_ELIMIT, "%zu pieces cut %d axes, %zu at most", c->n_frag,
                         c->n_axis, MAX_CORNERS / each - 1);
    k = ckpt_alloc((c->n_frag + 1) * each, sizeof *k);
    if (!k)
        return ckpt_nomem(err, (c->n_frag + 1) * each * sizeof *k);
    for (size_t i = 0; i <= c->n_frag; i++)
        for (size_t e = 0; e < each; e++)
            k[n++] = (struct corner){(uint32_t)i, (uint32_t)e};
    qsort_r(k, n, sizeof *k, compare, c);
    for (size_t i = 0; rc == 0 && i < n;) {
        size_t first = i;
        int64_t sum = 0;

        for (; i < n && compare(&k[i], &k[first], c) == 0; i++)
            sum += (__builtin_popcount(k[i].ends) & 1) == (k[i].piece == c->n_frag) ? 1 : -1;
        if (sum)
            rc = told(c, &k[first], sum, err);
    }
    ckpt_free(k);
    return rc;
}

int ckpt_fragment_check(const struct ckpt_shape *shape, enum ckpt_dtype dtype,
                        const struct ckpt_fragment *frag, size_t n_frag, struct ckpt_err *err)
{
    struct cut c = {.shape = shape, .frag = frag, .n_frag = n_frag};
    int64_t numel;
    int rc;

    if (!ckpt_shape_numel(&numel, shape))
        return ckpt_fail(err, CKPT_EFORMAT, "the shape is out of range");
    if (ckpt_dtype_size(dtype) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s elements are not read",
                         ckpt_dtype_name(dtype));
    if (numel == 0)
        return n_frag == 0 ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "bounds",
                                              "an empty tensor has %zu pieces", n_frag);
    if (n_frag == 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "hole", "%lld elements lie in no piece",
                            (long long)numel);
    for (size_t i = 0; i < n_frag; i++)
        if ((rc = check_bounds(shape, ckpt_dtype_size(dtype), &frag[i], err)) != 0)
            return rc;
    find_cut_axes(&c);
    return tile_in_order(&c) ? 0 : check_corners(&c, err);
}
