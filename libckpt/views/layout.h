/*
 * views/layout - a source whose tensors are pieces of those beneath it in another order.
 *
 * Formats store the same numbers in different ways: experts as tensors of their own or stacked,
 * fused projections, matrices transposed, rows in another order.  Values and dtypes stay; a tensor
 * that the source beneath lacks can be made of constants.
 */
#ifndef CKPT_LIBCKPT_VIEWS_LAYOUT_H
#define CKPT_LIBCKPT_VIEWS_LAYOUT_H

#include "libckpt/source.h"

/* Elements [start, start + the row's share) of tensor src beneath. */
struct ckpt_layout_part {
    size_t  src;
    int64_t start;
};

enum ckpt_layout_order {
    CKPT_LAYOUT_PLAIN,      /* the parts one after the other */
    /* One part, whose rows (slices along the first axis) are counted in [o][a][b][c], are seen
     * as [o][b][a][c]. */
    CKPT_LAYOUT_ROWS,
    CKPT_LAYOUT_TRANSPOSED  /* one part, a matrix [shape.dim[1]][shape.dim[0]] */
};

struct ckpt_layout {
    const char                    *name;
    struct ckpt_shape              shape;
    const struct ckpt_layout_part *part;    /* [n_part], equal shares, all of one dtype */
    size_t                         n_part;  /* 0: made of values */
    const float                   *value;   /* F32 [numel], when there is no part */
    enum ckpt_layout_order         order;
    int64_t                        a, b, c; /* of rows */
    const char                    *stored;  /* see struct ckpt_tensor; bytes beside */
    uint64_t                       stored_bytes;
};

/*
 * The tensors of rows, in their order.  Takes src, on failure too; keeps nothing of row (parts,
 * names and values are copied).  info replaces that of src (taken, on failure too) unless it is
 * NULL.  CKPT_ESTATE when a row does not fit what lies beneath.
 */
int ckpt_view_layout(struct ckpt_source **out, struct ckpt_source *src,
                     const struct ckpt_layout *row, size_t n_row, json_t *info,
                     struct ckpt_err *err);

#endif
