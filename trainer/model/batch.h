/* batch - check that a batch fits the model's plan, and copy it to the device. */
#ifndef CKPT_TRAINER_MODEL_BATCH_H
#define CKPT_TRAINER_MODEL_BATCH_H

#include <stdint.h>

#include "libckpt/fail.h"

struct batch;
struct model;

/* On the device, by the names of struct batch (model.h). */
struct batch_arrays {
    int32_t *ids, *positions, *doc_start, *rows, *targets, *token_type_ids;
    int32_t *positions_host;            /* [N] rows of the table of positions */
};

/* Check that every id and row exists; gives the rows of the longest documents. */
int batch_check(const struct model *m, const struct batch *b, int64_t *max_doc, int64_t *max_enc,
                struct ckpt_err *err);
int batch_refuse(struct ckpt_err *err, const char *what, int64_t found, int64_t limit);

#endif
