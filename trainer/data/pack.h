/*
 * pack - samples -> batch (trainer/model/model.h): documents one after another, with the padding
 * that samples bring.
 *
 * The target of row i is the label of token i + 1 of the same document: a document's first label
 * is never used and its last row has no target.  Rows without a target are not listed. The
 * decoder's last token of a pair is only a target and has no row.
 */
#ifndef CKPT_TRAINER_DATA_PACK_H
#define CKPT_TRAINER_DATA_PACK_H

#include "trainer/data/stream.h"
#include "trainer/model/model.h"

/* Memory of one batch, allocated once. */
struct pack {
    struct batch batch;         /* pointers into the arrays below */
    int32_t     *ids, *positions, *doc_start, *rows, *targets;
    int32_t     *real_start, *real_end; /* [max_docs] each; NULL: samples have no padding */
    int32_t     *enc_ids, *enc_start;
    int64_t     *samples;
    int64_t      max_tokens, max_docs, max_enc;
};

int pack_init(struct pack *p, int64_t max_tokens, int64_t max_docs, struct ckpt_err *err);
/* Allocate for pairs: that many rows of the encoder. */
int pack_init_pairs(struct pack *p, int64_t max_enc, struct ckpt_err *err);
/* Allocate for samples with padding. */
int pack_init_padded(struct pack *p, struct ckpt_err *err);
void pack_release(struct pack *p);
void pack_clear(struct pack *p);
/* Add a document, as batch.samples names it; supervised false leaves its labels out.  CKPT_ESTATE
 * when it does not fit. */
int pack_add(struct pack *p, const struct sample *s, int64_t name, bool supervised,
             struct ckpt_err *err);

/*
 * Assign samples to micro-batches: first-fit decreasing over windows of the order.  Within a
 * window samples are taken longest first (equal lengths in order) and put into the first bin with
 * enough space; bins are ordered by their earliest sample, so that the epoch's order still
 * decides when data is seen.
 */
struct pack_plan {
    int64_t *item; /* [n] samples, bin after bin; within a bin in the epoch's order */
    int64_t *bin;               /* [n_bin + 1] first of each bin in item, then n */
    int64_t  n, n_bin, largest; /* largest: samples of the fullest bin */
};

#define PACK_WINDOW 8192        /* samples; wide enough to fill bins, small next to an epoch */

/*
 * order[n] are indices into length; a sample longer than max_tokens is CKPT_ELIMIT. Fills a
 * zeroed plan, or one filled before with the same n.
 */
int pack_plan_make(struct pack_plan *plan, const int64_t *order, int64_t n,
                   const int32_t *length, int64_t max_tokens, struct ckpt_err *err);
void pack_plan_release(struct pack_plan *plan);

#endif
