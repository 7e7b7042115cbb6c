/*
 * lora/factors - pairs of low-rank factors, loaded when they are needed.
 *
 * A few pairs stay in memory besides those in use, so that neighbouring ranges need not load them
 * again.
 */
#ifndef CKPT_LIBCKPT_LORA_FACTORS_H
#define CKPT_LIBCKPT_LORA_FACTORS_H

#include "libckpt/lora/product.h"
#include "libckpt/source.h"

/* The delta of a matrix W [n_row, n_col]; checked by the caller. */
struct lora_pair {
    struct ckpt_source *adapter;
    size_t  a, b;               /* its tensors: A is [r, in], B is [out, r] */
    size_t  magnitude;          /* DoRA: tensor of [out] norms that W's rows get, or SIZE_MAX */
    float   scale;
    bool    transposed;         /* W is [in, out], not [out, in] */
    int64_t n_row, n_col;
    int64_t r;                  /* rank; rows of A from a_row, columns of B from b_col by b_step */
    int64_t a_row, b_row, b_col, b_step;
};

/* Elements [start, start + n) of pair i's matrix W as f32.  Any thread. */
typedef int lora_read_fn(void *ctx, size_t i, int64_t start, int64_t n, float *w,
                         struct ckpt_err *err);

/* Elements [start, start + n) of a source's tensor, converted to dtype `to`. */
int lora_read_as(void *dst, enum ckpt_dtype to, struct ckpt_source *src, size_t i, int64_t start,
                 int64_t n, struct ckpt_err *err);

struct lora_factors;

/* Keeps adapters and ctx until free; copies pairs.  read_w is called only to compute DoRA norms. */
int lora_factors_new(struct lora_factors **out, const struct lora_pair *pair, size_t n,
                     lora_read_fn *read_w, void *ctx, struct ckpt_err *err);
void lora_factors_free(struct lora_factors *f);

/* use: valid until end.  Any thread.  Call end only after a begin that returned 0. */
int lora_factors_begin(struct lora_product *use, struct lora_factors *f, size_t i,
                       struct ckpt_err *err);
void lora_factors_end(struct lora_factors *f, size_t i);

#endif
