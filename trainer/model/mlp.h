/* mlp - a block's second half: norm, feed-forward (plain, gated or routed), residual. */
#ifndef CKPT_TRAINER_MODEL_MLP_H
#define CKPT_TRAINER_MODEL_MLP_H

#include <stdbool.h>

struct block_bufs;
struct layer;
struct pass;

/* For the load-balancing loss of routed experts. */
struct routing {
    float *used, *dused;                /* [2, E], [E] of all blocks together; NULL: no such loss */
    float *used_host;                   /* [2, E] */
    double balance;                     /* what routers add to the mean loss of this pass */
};

/* y2 ... h' (written to next), and back: dh becomes the gradient of h1. */
void mlp_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *next);
/* Recompute only what mlp_bwd reads: y2 and u; post-norm also s and its statistics. */
void mlp_recompute(const struct pass *p, const struct layer *l, const struct block_bufs *b);
void mlp_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *dh);
/* Whether the norm between the halves sums the bias gradients of the output and down
 * projections: its backward reads both gradients. */
bool mlp_norm_sums_biases(const struct pass *p, const struct layer *l);
/* After the forward pass: the routers' balance, and the gradient dused of scale times the sum
 * over the rows. */
void mlp_balance(const struct pass *p, float scale);

#endif
