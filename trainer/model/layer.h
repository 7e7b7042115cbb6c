/*
 * layer - a layer's weights and gradients while a pass uses them, and the arguments of operations
 * that use them.
 *
 * Layer 0 is the part before the first block, 1 to L are the blocks, L + 1 is the part after the
 * last.
 */
#ifndef CKPT_TRAINER_MODEL_LAYER_H
#define CKPT_TRAINER_MODEL_LAYER_H

#include "formats/families/role.h"
#include "trainer/ops/ops.h"

struct model;
struct pass;

/* Where a role's parameter lies, and its LoRA: elements from the start of its layer's weights (-1:
 * there is none) and gradients (-1: frozen). */
struct role_place {
    int64_t weight, grad;
    struct {
        int64_t a, b, magnitude, da, db, dmagnitude;
        int64_t rank;               /* 0: no LoRA */
        int64_t low;                /* columns of BUF_LOW before its own */
        float   scale;
    } lora;
};

/* Rows of the embedding that are trained separately (PEFT's trainable_token_indices). */
struct trained_rows {
    int64_t  at, grad_at;           /* in layer 0 */
    int64_t  n;                     /* 0: none */
    int32_t *ids, *ids_host;        /* [n] */
};

struct layer {
    const struct model *m;
    int                 index;
    const void         *weights;
    void               *grads;      /* NULL in a forward pass */
    bool                overwrite;  /* no sums yet: overwrite instead of adding, where an operation
                                       can */
};

struct layer layer_acquire(const struct pass *p, int index);
/* Acquire its gradients too. */
void layer_acquire_grads(const struct pass *p, struct layer *l);
void layer_release(const struct pass *p, const struct layer *l);
/* Addresses by role; NULL when there is no such parameter (or it is frozen, for gradients). */
const void *layer_weight(const struct layer *l, enum role role);
void *layer_grad(const struct layer *l, enum role role);
void layer_trained_rows(struct op_embed *op, const struct layer *l);
/* A norm's weights, gradients and constants. */
struct op_norm layer_op_norm(const struct layer *l, enum role w, enum role b);
/* That norm over p->n rows of x, not gathered. */
struct op_rownorm layer_op_rownorm(const struct pass *p, const struct layer *l, enum role w,
                                   enum role b, void *out, float *stats, const void *x);
/* The LoRA of that role's matrix; rank 0 when it has none. */
struct op_lora layer_op_lora(const struct pass *p, const struct layer *l, enum role role);
/* The product of p->n rows with that role's matrix [n_out, n_in]; b is its bias, or ROLE_COUNT. */
struct op_linear layer_op_linear(const struct pass *p, const struct layer *l, enum role w,
                                 enum role b, int64_t n_in, int64_t n_out);

/* -- products of one x ------------------------------------------------------------------------ */
/*
 * Merge products whose matrices are adjacent in memory and whose outputs are adjacent into one
 * product of all these outputs.  Returns how many are left.
 */
int layer_join(struct op_linear *op, int n, const struct device *dev);
/* Forward or back. */
void layer_multiply(const struct pass *p, const struct op_linear *op, int n, bool back);
/*
 * Products after the norm that computes their x, forward; with gate also the gate of op[0].  A
 * device that fuses them does not write x, if nothing else reads it.
 */
void layer_norm_multiply(const struct pass *p, const struct op_rownorm *norm,
                         const struct op_linear *op, int n, const struct op_gate *gate);

#endif
