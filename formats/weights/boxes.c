/* boxes - see boxes.h. */
#include "formats/weights/boxes.h"

#include <stdlib.h>
#include <string.h>

static int by_start(const void *a, const void *b)
{
    const struct ckpt_fragment *x = a, *y = b;

    for (int d = 0; d < CKPT_MAX_RANK; d++)
        if (x->box.start[d] != y->box.start[d])
            return x->box.start[d] < y->box.start[d] ? -1 : 1;
    return 0;
}

/* Keep one of the boxes that are the same; those that begin alike lie side by side. */
static size_t drop_replicas(struct ckpt_fragment *frag, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++)
        if (kept == 0 || memcmp(&frag[kept - 1].box, &frag[i].box, sizeof frag->box) != 0)
            frag[kept++] = frag[i];
    return kept;
}

int boxes_add(struct ckpt_tensors *list, struct ckpt_tensor **added, const char *name,
              enum ckpt_dtype dtype, const struct ckpt_shape *shape, struct ckpt_fragment *frag,
              size_t n, bool replicas, struct ckpt_err *err)
{
    if (n > 1)
        qsort(frag, n, sizeof *frag, by_start);
    if (replicas)
        n = drop_replicas(frag, n);
    if (ckpt_tensors_add(list, added, name, strlen(name), dtype, shape, frag, n, false, err))
        return err->code;
    return ckpt_fragments_check(shape, dtype, frag, n, err) ? ckpt_err_in(err, "%s", name) : 0;
}
