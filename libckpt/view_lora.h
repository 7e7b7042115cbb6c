/*
 * view_lora - a base and low-rank updates seen as merged weights.
 *
 * merged = W + scale * (B @ A), summed in f32 (products in order of rank), rounded once to W's
 * dtype.  A range of rows needs those rows of B and all of A: memory is A's, never W's.
 */
#ifndef CKPT_VIEW_LORA_H
#define CKPT_VIEW_LORA_H

#include "libckpt/source.h"

/* One update: W[rows, cols] += scale * op(B @ A). */
struct ckpt_lora_update {
    size_t base;                /* tensor of base */
    size_t a, b;                /* tensors of the adapter: A is [r, in], B is [out, r] */
    float  scale;
    bool   transposed;          /* W is [in, out] (Conv1D): add the transpose */
    bool   replace;             /* W becomes tensor a, in W's dtype; b and scale unused */
};

/* Takes both sources, on failure too.  Shapes and dtypes are checked here: CKPT_EMISMATCH. */
int ckpt_view_lora(struct ckpt_source **out, struct ckpt_source *base,
                   struct ckpt_source *adapter, const struct ckpt_lora_update *update,
                   size_t n_update, struct ckpt_err *err);

#endif
