/* boxes - see boxes.h. */
#include "formats/dcp/boxes.h"

#include <stdlib.h>
#include <string.h>

static const struct ckpt_box *box_of(const struct ckpt_fragment *f, const struct ckpt_box *whole)
{
    return f->box ? f->box : whole;
}

static int by_start(const void *a, const void *b, void *whole)
{
    const struct ckpt_box *x = box_of(a, whole), *y = box_of(b, whole);

    for (int d = 0; d < CKPT_MAX_RANK; d++)
        if (x->start[d] != y->start[d])
            return x->start[d] < y->start[d] ? -1 : 1;
    return 0;
}

/* Keep one of identical boxes; boxes with the same start are adjacent. */
static size_t drop_replicas(struct ckpt_fragment *frag, size_t n,
                            const struct ckpt_box *whole)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (kept == 0 || memcmp(box_of(&frag[kept - 1], whole), box_of(&frag[i], whole),
                                sizeof *whole) != 0)
            frag[kept++] = frag[i];
    return kept;
}

int boxes_add(struct ckpt_tensors *list, struct ckpt_tensor **added, const char *name,
              enum ckpt_dtype dtype, const struct ckpt_shape *shape, struct ckpt_fragment *frag,
              size_t n, bool replicas, struct ckpt_err *err)
{
    struct ckpt_box whole = {0};
    int rc;

    memcpy(whole.count, shape->dim, (size_t)shape->rank * sizeof *whole.count);
    if (n > 1)
        qsort_r(frag, n, sizeof *frag, by_start, &whole);
    if (replicas)
        n = drop_replicas(frag, n, &whole);
    if ((rc = ckpt_tensors_add(list, added, name, strlen(name), dtype, shape, frag, n, false,
                               err)) != 0)
        return rc;
    return ckpt_fragment_check(shape, dtype, frag, n, err) ? ckpt_err_in(err, "%s", name) : 0;
}

/* The largest box that begins at element `at` and has at most `most` elements, >= 1; returns its
 * own. */
static int64_t largest(struct ckpt_box *box, const struct ckpt_shape *shape, int64_t at,
                       int64_t most)
{
    int64_t inner = 1, left = at;
    int axis = shape->rank;             /* all of the axes from this one on is covered */

    while (axis > 0 && at % (inner * shape->dim[axis - 1]) == 0 &&
           inner * shape->dim[axis - 1] <= most)
        inner *= shape->dim[--axis];
    for (int d = shape->rank - 1; d >= 0; d--) {
        box->start[d] = left % shape->dim[d];
        box->count[d] = d < axis ? 1 : shape->dim[d];
        left /= shape->dim[d];
    }
    if (axis > 0) {                     /* of the axis before them as much as goes */
        int64_t fits = most / inner, rows = shape->dim[axis - 1] - box->start[axis - 1];

        box->count[axis - 1] = fits < rows ? fits : rows;
        inner *= box->count[axis - 1];
    }
    return inner;
}

size_t boxes_of_run(struct ckpt_box box[BOXES_OF_RUN], const struct ckpt_shape *shape,
                    int64_t start, int64_t count)
{
    size_t n = 0;

    for (int64_t end = start + count; start < end; n++) {
        memset(&box[n], 0, sizeof box[n]);
        start += largest(&box[n], shape, start, end - start);
    }
    return n;
}
