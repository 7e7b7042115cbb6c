/*
 * views/layout - a source whose tensors are rearranged from those beneath it.
 *
 * Formats store the same numbers in different ways: experts as separate tensors or stacked, fused
 * projections, transposed matrices, rows in another order.  Values and dtypes do not change; a
 * tensor that the source beneath lacks can be made of constants.
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
    CKPT_LAYOUT_PLAIN,      /* the parts concatenated */
    /* One part, whose rows (slices along the first axis), numbered [o][a][b][c] beneath, appear
     * in the order [o][b][a][c]. */
    CKPT_LAYOUT_ROWS,
    CKPT_LAYOUT_TRANSPOSED  /* one part, a matrix [shape.dim[1]][shape.dim[0]] */
};

struct ckpt_layout {
    const char                    *name;
    struct ckpt_shape              shape;
    const struct ckpt_layout_part *part;    /* [n_part], of equal size and one dtype */
    size_t                         n_part;  /* 0: the tensor consists of value */
    const float                   *value;   /* F32 [numel], when there is no part */
    enum ckpt_layout_order         order;
    int64_t                        a, b, c; /* of rows */
    const char                    *stored;  /* see struct ckpt_tensor; bytes beside */
    uint64_t                       stored_bytes;
};

/*
 * The tensors of rows, in their order.  Takes src, on failure too; keeps nothing of row (parts,
 * names and values are copied).  info replaces that of src (taken, on failure too) unless it is
 * NULL.  CKPT_ESTATE when a row does not fit the source beneath.
 */
int ckpt_view_layout(struct ckpt_source **out, struct ckpt_source *src,
                     const struct ckpt_layout *row, size_t n_row, json_t *info,
                     struct ckpt_err *err);

#endif
