/*
 * head - the part after the last block: the final norm at the rows that have a loss, the output
 * matrix, and back.
 *
 * The matrix is the embedding's table where they are tied.  If some rows of that table are
 * trained on their own, the matrix is a copy of the table with these rows replaced, and its
 * gradients of these rows are added to those of the lookups.  Source: peft 0.21
 * tuners/trainable_tokens/layer.py, a tied adapter.
 */
#ifndef CKPT_TRAINER_MODEL_HEAD_H
#define CKPT_TRAINER_MODEL_HEAD_H

#include <stdbool.h>
#include <stdint.h>

struct layer;
struct model;
struct pass;

struct head {
    float  *stats;                      /* of the final norm */
    void   *y, *dy;                     /* its output at the chosen rows [rows, D] */
    void   *z, *dz;                     /* [rows, w]: after a projection; NULL: none */
    void   *w;                          /* weight [V, w]: copy of a tied matrix with separately
                                           trained rows; NULL: the table itself, or untied */
    void   *dw;                         /* gradient of it */
    bool    made;                       /* w is filled, from weights that do not change */
    float  *nll, *nll_host;             /* [rows] */
    float  *logits;                     /* [logit_rows, V] */
    int64_t logit_rows;
};

/* Final norm and loss of the supervised rows; with back also dh. */
void head_loss(const struct pass *p, float scale, bool back);
/* The layer that holds the head's matrix: the embedding's when tied. */
int head_layer(const struct model *m);
/* The matrix that the head multiplies by, from that layer. */
const void *head_matrix(const struct pass *p, const struct layer *head);
/* logits (on the device) [n, V] of the rows of h that the batch's `rows` names. */
void head_rows(const struct pass *p, const struct layer *after, const void *matrix, const void *h,
               int64_t n, float *logits);

#endif
