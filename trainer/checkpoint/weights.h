/*
 * weights - move tensors between a checkpoint and the ranks' memory, sliced by rank.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_WEIGHTS_H
#define CKPT_TRAINER_CHECKPOINT_WEIGHTS_H

#include "libckpt/sink.h"
#include "libckpt/source.h"
#include "trainer/shard/zero.h"

/*
 * Which tensor of a source holds each parameter: index[n_params]; or with moment[n_params] which
 * has its moment of that name ("exp_avg"; NULL: it has none).  With exact set, tensors of kind
 * WEIGHT that belong to no parameter are errors, except names tied to a parameter (`tied`, may be
 * NULL) and those the family calls spare.  CKPT_EMISMATCH names the first missing or unexpected
 * tensor, or both shapes, and counts the rest.
 */
int weights_match(size_t *index, const struct params *params, const struct ckpt_source *src,
                  const char *const *moment, const char *tied, bool exact, struct ckpt_err *err);

/*
 * Whether src has a tied head whose values differ from the embedding's (names with or without the
 * prefix): then the head in the file is used.
 */
int weights_head_differs(bool *differs, struct ckpt_source *src, const char *head,
                         const char *prefix, const char *tokens, struct ckpt_err *err);

/*
 * Fill one of this rank's arrays from the matched tensors, converted to f32; a parameter with
 * index SIZE_MAX is left unchanged; from: offset of each parameter in its tensor; NULL: 0.  Reads
 * only what the rank owns, through at most 1 MiB of staging.
 */
int weights_load(struct zero *z, enum zero_array of, struct ckpt_source *src, const size_t *index,
                 const int64_t *from, struct ckpt_err *err);

/*
 * As weights_match, for an adapter's checkpoint: everything trained, under the names PEFT saves
 * (live: those of the wrapped model); other parameters get SIZE_MAX.  Of weights, tensors that
 * belong to no parameter are errors.
 */
int weights_match_saved(size_t *index, const struct params *params, const struct ckpt_source *src,
                        const char *const *moment, bool live, struct ckpt_err *err);

/*
 * Gather the model and write it on rank 0, in pieces or, where it is sharded by layer, layer by
 * layer, as tensors named as torch names them, or an adapter's as PEFT names them.  Collective:
 * every rank calls; sink is NULL but on rank 0, whose list is weights_list's.
 */
int weights_gather(struct zero *z, struct comm *comm, struct ckpt_sink *sink,
                   struct ckpt_err *err);
/* Who else takes what is gathered: elements [start, start + n) of parameter i, in order. */
struct weights_taker {
    int (*take)(void *ctx, size_t i, int64_t start, int64_t n, const float *from,
                struct ckpt_err *err);
    void *ctx;
};
/* The same, of every parameter to n takers too (NULL: none); of a model with an adapter, of what is
 * saved. */
int weights_gather_to(struct zero *z, struct comm *comm, struct ckpt_sink *sink,
                      const struct weights_taker *const *taker, size_t n, struct ckpt_err *err);
/* The same for the gradients of the current step; the list is that of the trained parameters. */
int weights_gather_grads(struct zero *z, struct comm *comm, struct ckpt_sink *sink, float times,
                         struct ckpt_err *err);
/* The tensors that are saved in dtype, in the model's order: all parameters, or an adapter's. */
int weights_list(struct ckpt_tensors *out, const struct params *params, enum ckpt_dtype dtype,
                 struct ckpt_err *err);
/* The tensors of all trained parameters. */
int weights_trained_list(struct ckpt_tensors *out, const struct params *params,
                         enum ckpt_dtype dtype, struct ckpt_err *err);

#endif
