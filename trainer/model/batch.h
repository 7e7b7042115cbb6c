/* batch - check that a batch fits the model's plan, and copy it to the device. */
#ifndef CKPT_TRAINER_MODEL_BATCH_H
#define CKPT_TRAINER_MODEL_BATCH_H

#include <stdint.h>

#include "libckpt/fail.h"

struct batch;
struct model;

/* On the device, by the names of struct batch (model.h). */
struct batch_arrays {
    int32_t *ids, *positions, *doc_start, *real_start, *real_end, *rows, *targets, *token_type_ids;
    int32_t *positions_host;            /* [N] rows of the table of positions */
    uint64_t *drop_rows, *drop_loss;    /* [N] op_drop_row of each; of those that have a loss,
                                           [R]; NULL both: no dropout in training */
    uint64_t *drop_host;                /* either, or the encoder's */
    struct op_noise_row *noise, *noise_host;    /* [N] each; NULL: none */
};

/* Check that every id and row exists; gives the rows of the longest documents. */
int batch_check(const struct model *m, const struct batch *b, int64_t *max_doc, int64_t *max_enc,
                struct ckpt_err *err);
int batch_refuse(struct ckpt_err *err, const char *what, int64_t found, int64_t limit);

#endif
