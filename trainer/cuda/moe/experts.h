/*
 * experts - the parts of routed feed-forwards: routing, and products by expert.
 *
 * A slot is one chosen expert of one row.  Slots are sorted by expert, then row.
 */
#ifndef CKPT_TRAINER_CUDA_MOE_EXPERTS_H
#define CKPT_TRAINER_CUDA_MOE_EXPERTS_H

#include "trainer/cuda/matmul/matmul.h"

/* Most experts of a router: a block holds a mask of ROUTE_ROWS rows for each. */
enum { ROUTE_ROWS = 256, ROUTE_MOST = 1024 };

/* Arrays of a route, in the workspace. */
struct moe_route {
    int32_t *first;                 /* [E + 1] first slot of each expert */
    int2    *start;                 /* [E + 1] for grouped_rows.cu */
    int32_t *counts;                /* [E, chunks] rows of each chunk, then where they begin */
    int32_t *row;                   /* [n k] of each slot */
    int32_t *place;                 /* [n k] the slot of (row, j-th chosen) */
    float   *weight;                /* [n k] by slot */
    float   *dweight;               /* [n k] bwd: gradient of weight */
};

/* Bytes of a route; r gets its arrays, from base on. */
uint64_t moe_route_layout(struct moe_route *r, unsigned char *base, int64_t n, int64_t k,
                          int64_t E);

/* Replace logits by probabilities in probs, and fill chosen. */
void moe_route_topk(struct device *dev, const struct op_experts *a);
/* Fill all of r but dweight, from probs and chosen. */
void moe_route_sort(struct device *dev, const struct op_experts *a, const struct moe_route *r);
void moe_route_count_used(struct device *dev, const struct op_experts *a,
                          const struct moe_route *r);
/* dlogits [n, E], of the device's type, from dweight. */
void moe_route_bwd(struct device *dev, const struct op_experts *a, const struct moe_route *r,
                   void *dlogits);
/* to[slot] = from[row of the slot], rows of D. */
void moe_route_gather(struct device *dev, const struct moe_route *r, void *to, const void *from,
                      int64_t slots, int64_t D);
/* out[i] = base[i] + sum over j of weight * y[place of (i, j)], in order of experts; base NULL:
 * 0, may be out; weighted false: weight is 1. */
void moe_route_combine(struct device *dev, const struct op_experts *a,
                       const struct moe_route *r, void *out, const void *base, const void *y,
                       bool weighted);
/*
 * Between the products of backward, by slot: dweight = g . dg; then, with the slot's weight w, du
 * from w dg, and g (if not NULL) becomes w g; g = act(u_gate) * u_up.
 */
void moe_route_gate_bwd(struct device *dev, const struct op_experts *a,
                        const struct moe_route *r, void *g, void *du, const void *dg);

/*
 * Products by expert.  Rows: d[slots of e, n] = a[slots of e, k] op(b_e) + beta d.  Outer:
 * d_e[m, n] += a[slots of e, m]^T b[slots of e, n], in f32.  Matrices of expert e are e *
 * stride elements after those of expert 0; the others have rows by slot.
 */
struct moe_grouped {
    const char    *op;
    bool           outer, b_t;
    int64_t        E, stride, m, n, k;
    const void    *a, *b;
    void          *d;
    void          *gated;           /* here: [slots, n / 2] SiLU of d's first half times the second
                                       (b_t); or NULL */
    int64_t        lda, ldb, ldd;
    float          beta;
    uint64_t       busy;
    const int32_t *first;           /* [E + 1], on the host; NULL: only by grouped_rows */
    const struct moe_route *route;
    int64_t        slots;
    bool           here;            /* rows by grouped_rows, which needs nothing from the host */
};

/* grouped_rows.cu: one launch for all experts, on chips of 9.0. */
/* Whether grouped_rows can do all products over rows of this operation. */
bool moe_grouped_supported(struct device *dev, const struct op_experts *a);
/* Where each expert's tiles begin. */
void moe_grouped_start(struct device *dev, const struct moe_route *r, int64_t E);
void moe_grouped_rows(struct device *dev, const struct moe_grouped *g);

#endif
