/*
 * generate/slots - continuous batching: at most so many sequences are in the batch at once, and
 * one that ends makes room for the next of the queue.
 *
 * A sequence takes as many rows of the cache as it may need, prompt and continuation; the prompts
 * of the sequences that enter are fed with the next tokens of those that run, in chunks.  Prompts
 * that all begin alike are computed once up to there, and the keys and values copied.
 *
 * Abbreviations: generate.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_SLOTS_H
#define CKPT_TRAINER_MODEL_GENERATE_SLOTS_H

#include "trainer/model/generate/generate.h"

/* How much a run holds at once; all of it is allocated before the first token. */
struct generate_plan {
    int64_t slots;                      /* sequences */
    int64_t longest;                    /* tokens of one sequence, at most */
    int64_t rows, enc_rows;             /* of the cache, and of the encoder's keys */
    int64_t prefix;                     /* tokens that all prompts begin with, computed once; 0:
                                           too few to be worth it */
};

/* Bytes of the cache for a row, and for a row of an encoder. */
uint64_t generate_row_bytes(const struct model *m);
uint64_t generate_enc_row_bytes(const struct model *m);

/* Plan a run within opts->max_batch and opts->cache_bytes: as many sequences as fit, the largest
 * ones taken, and room for the largest by itself at least. */
int generate_plan(struct generate_plan *out, const struct model *m,
                  const struct generate_opts *opts, const struct generate_seq *seq, int64_t n,
                  struct ckpt_err *err);
/* Continue all sequences, for checked options without beams. */
int generate_slots(struct model *m, const struct model_weights *w,
                   const struct generate_opts *opts, struct generate_seq *seq, int64_t n,
                   struct ckpt_err *err);

#endif
