/*
 * view_lora - a base and low-rank updates seen as merged weights.
 *
 * merged = W + scale * (B @ A), all in f32 (products added in order of rank), rounded once to
 * W's dtype; W may be the adapter's own copy, its rows may be given a length (DoRA), and some of
 * them may be replaced.  A range needs the factors and no more of W than itself, so memory is
 * that of a few pairs of factors, whatever the model's size; only lengths need W whole, once.
 */
#ifndef CKPT_VIEW_LORA_H
#define CKPT_VIEW_LORA_H

#include "libckpt/source.h"

#define CKPT_LORA_NONE SIZE_MAX

/* One update: what becomes of a tensor of the base. */
struct ckpt_lora_update {
    size_t         base;        /* tensor of base: W, and whose dtype and shape the result has */
    const char    *as;          /* NULL: in W's place; else a further tensor of that name */
    size_t         own;         /* tensor of the adapter that stands for W, or NONE */
    size_t         a, b;        /* of the adapter: A is [r, in], B is [out, r]; or NONE both */
    float          scale;
    bool           transposed;  /* W is [in, out] (Conv1D, embedding): add the transpose */
    size_t         magnitude;   /* [out] lengths that W's outputs are brought to, or NONE */
    size_t         rows;        /* [n_row, cols] rows that replace those of the result, or NONE */
    const int64_t *row;         /* [n_row] which; borrowed for the call of ckpt_view_lora */
    size_t         n_row;
};

/*
 * Takes both sources, on failure too.  Shapes and dtypes are checked here: CKPT_EMISMATCH.
 * A tie of the base stays a tie only where none of the tied tensors is updated.
 */
int ckpt_view_lora(struct ckpt_source **out, struct ckpt_source *base,
                   struct ckpt_source *adapter, const struct ckpt_lora_update *update,
                   size_t n_update, struct ckpt_err *err);

#endif
