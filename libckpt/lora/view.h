/*
 * lora/view - a base and low-rank updates of one or more adapters seen as merged weights.
 *
 * A single update gives W' = W + scale * (B @ A), all in f32 (products added in order of rank); W
 * may be the adapter's own copy, rows of W' may be scaled to given norms (DoRA), a vector may be
 * added, and some rows may be replaced.  Updates of several adapters give W + sum of weight * (W'
 * - W), whatever their order.  Either is rounded once to W's dtype.  A range needs the factors
 * and its own part of W, so memory is that of a few pairs of factors, whatever the model's size;
 * only the norms of DoRA need all of W, once.
 */
#ifndef CKPT_LIBCKPT_LORA_VIEW_H
#define CKPT_LIBCKPT_LORA_VIEW_H

#include "libckpt/source.h"

#define CKPT_LORA_NONE         SIZE_MAX
#define CKPT_LORA_MAX_ADAPTERS 32

/* The parts of W, A and B that belong together; all zero: the whole of each. */
struct ckpt_lora_part {
    int64_t first;              /* element of W where the part begins */
    int64_t n_row, n_col;       /* the part as a matrix; 0: W as [dim 0, the others] */
    int64_t rank;               /* rows of A, columns of B; 0: all */
    int64_t a_row, b_row;       /* the first of each */
    int64_t b_col, b_step;      /* column k of the part is column b_col + k * b_step of B */
};

/* One update of a tensor of the base. */
struct ckpt_lora_update {
    size_t         base;        /* tensor of base: W; the result has its dtype and shape */
    const char    *as;          /* NULL: replaces W; else the result is a further tensor of that
                                   name */
    size_t         from;        /* which adapter */
    float          weight;      /* weight of this adapter's delta */
    bool           finite;      /* reading W' that is not finite where W is is CKPT_EFORMAT */
    size_t         own;         /* tensor of the adapter to use instead of W, or NONE */
    bool           stacked;     /* own is [n, rows, cols], W a part of it from own_first on */
    int64_t        own_first;   /* element of own that is W's first; 0 unless stacked */
    bool           resized;     /* own may have another number of rows, which the result then has */
    size_t         a, b;        /* of the adapter: A is [r, in], B is [out, r]; or NONE both */
    float          scale;
    bool           transposed;  /* W is [in, out] (Conv1D, embedding): add the transpose */
    size_t         magnitude;   /* DoRA: [out] norms of W's rows, or NONE */
    size_t         add;         /* same shape as W: scale times it is added, or NONE */
    size_t         rows;        /* [n_row, cols] rows that replace those of the result, or NONE */
    const int64_t *row;         /* [n_row] which; borrowed for the call of ckpt_view_lora */
    size_t         n_row;
    struct ckpt_lora_part part;
};

/*
 * Takes all sources, on failure too.  Shapes and dtypes are checked here: CKPT_EMISMATCH.  An
 * adapter's updates of one tensor are parts of it, in order.  A tie of the base stays a tie only
 * where none of the tied tensors is updated.
 */
int ckpt_view_lora(struct ckpt_source **out, struct ckpt_source *base,
                   struct ckpt_source *const *adapter, size_t n_adapter,
                   const struct ckpt_lora_update *update, size_t n_update, struct ckpt_err *err);

#endif
