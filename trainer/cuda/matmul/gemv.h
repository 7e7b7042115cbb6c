/*
 * gemv - projections of a few rows, as in generation: limited by reading the weights.
 */
#ifndef CKPT_TRAINER_CUDA_MATMUL_GEMV_H
#define CKPT_TRAINER_CUDA_MATMUL_GEMV_H

#include "trainer/cuda/cuda.h"

/* out = act(alpha x W^T + b) + residual; pre gets the argument of act. */
struct gemv {
    const char  *op;
    void        *out, *pre;         /* [n, n_out]; rows of out are out_ld apart; pre NULL: none */
    const void  *x, *w;             /* [n, n_in], [n_out, n_in] */
    const void  *b, *residual;      /* [n_out], [n, n_out] or NULL; may be out */
    int64_t      n, n_in, n_out, out_ld;
    float        alpha;
    enum op_act  act;
    bool         gated;             /* out = act(first half of p) * second half, [n, n_out / 2], the
                                       halves rounded first; without pre, b and residual */
    bool         wide;              /* out is f32, whatever the device's type; without the rest */
    const struct op_rownorm *norm;  /* forward only, its stats are not written: compute x, which
                                       is then not read; NULL: none */
};

/* False, with nothing queued: too many rows, or unsuitable widths or pointers. */
bool gemv(struct device *dev, const struct gemv *g);
/* The same by gemv_ring.cu alone; pointers and widths allow 16-byte accesses. */
bool gemv_ring(struct device *dev, const struct gemv *g);

#endif
