/*
 * encoder - the encoder beside a decoder: its forward pass before the decoder's and its backward
 * pass after it, and the tables of positions by buckets of distance.
 */
#ifndef CKPT_TRAINER_MODEL_ENCODER_H
#define CKPT_TRAINER_MODEL_ENCODER_H

#include <stdint.h>

#include "libckpt/fail.h"

struct model;
struct pass;

struct encoder {
    int32_t *ids, *start;               /* [n_enc], [n_docs + 1] */
    void    *last;                      /* output of the last block [n_enc, D] */
    void    *out;                       /* the same after its norm */
    void    *dout;                      /* gradient of out, then of the residual stream */
    float   *stats;                     /* of the norm */
    uint64_t *drop_rows;                /* [n_enc] op_drop_row of each; NULL: no dropout */
    struct op_noise_row *noise, *noise_host;    /* [n_enc] each; NULL: none */
};

/* From its ids to out, and from dout back to the embedding's gradients. */
void encoder_fwd(const struct pass *p);
void encoder_bwd(const struct pass *p);
/* Fill the tables of position buckets, if the model has them. */
int encoder_upload_buckets(struct model *m, struct ckpt_err *err);

#endif
