/*
 * loader - batches of optimizer steps for this rank, prepared ahead by a thread.
 *
 * A position is a step number counted from the start of the run: step s lies in epoch s /
 * steps_per_epoch.  Data of a step depends on the options and the step's number alone, so after
 * loader_seek a resumed run sees the same data as an uninterrupted one.  Memory is allocated when
 * the loader opens and does not grow.
 *
 * batch.samples are the samples' numbers in the source, n (their count) more where an epoch takes
 * one for the second time: within a step no two documents share one, and which rank and
 * micro-batch a document comes to does not change it.
 *
 * Without packing a micro-batch is micro_batch samples (HF's per_device_train_batch_size), one
 * document each.  With packing it is as many samples as fit into max_tokens; shuffle's rules then
 * order and distribute bins instead of samples, one bin per micro-batch.  An epoch then has as
 * many steps as its bins need, which may differ from epoch to epoch; a seek walks through the
 * epochs.
 */
#ifndef CKPT_TRAINER_DATA_LOADER_H
#define CKPT_TRAINER_DATA_LOADER_H

#include "trainer/data/pack.h"
#include "trainer/data/shuffle.h"

struct loader_opts {
    int64_t           micro_batch;      /* samples; without packing */
    bool              packing;
    int64_t           max_tokens;       /* tokens of a micro-batch; with packing */
    int64_t           grad_accum;
    uint64_t          seed;
    bool              shuffle;
    enum shuffle_tail tail;
    int               rank, world_size;
    bool              distributed;      /* ranks as torch's DistributedSampler (shuffle.h) */
    bool              by_length;        /* samples of similar length together; not with packing */
    int               prefetch;         /* steps kept ready; 0: 2 */
};

/* This rank's data of one step.  Borrowed until the next call of loader_next. */
struct loader_step {
    int64_t              step;          /* position: 0, 1, ... */
    int64_t              epoch;
    int64_t              step_of_epoch, steps_of_epoch;
    int64_t              n_micro;       /* <= grad_accum; equal on all ranks */
    int64_t              micro_done, micro_of_epoch;    /* micro-batches of the epoch: up to the
                                                           end of this step, and all */
    const struct batch **micro;         /* [n_micro] */
    int64_t              n_targets;     /* supervised rows of the step on this rank */
    int64_t              n_tokens;      /* of the step on this rank */
    int64_t              n_samples;     /* the same, completions of the last batch included */
};

struct loader;

/* Keeps source until closed.  With packing or by_length the source is scanned here, unless that
 * has been done. */
int loader_open(struct loader **out, struct data_source *source, const struct loader_opts *opts,
                struct ckpt_err *err);
void loader_close(struct loader *l);
/* The largest micro-batch that can occur, for model_opts: tokens, documents, supervised rows. */
int64_t loader_max_tokens(const struct loader *l);
int64_t loader_max_docs(const struct loader *l);
int64_t loader_max_rows(const struct loader *l);
int64_t loader_max_enc(const struct loader *l);     /* rows of an encoder; 0: there is none */
/* Steps of the first epoch (of every epoch without packing). */
int64_t loader_steps_per_epoch(const struct loader *l);
/* Steps of the first n_epochs epochs together: converts num_train_epochs to max_steps. */
int loader_steps_of(struct loader *l, int64_t n_epochs, int64_t *steps, struct ckpt_err *err);
/*
 * Tokens of the first `steps` steps on all ranks, where sample i has token[i] of them [count of the
 * source], and what their micro-batches hold with packing.  Reads no samples.
 */
struct loader_tokens {
    int64_t tokens, capacity;
};
int loader_count(const struct loader *l, const int32_t *token, int64_t steps,
                 struct loader_tokens *out, struct ckpt_err *err);
/* Continue at step; prepared steps are dropped. */
int loader_seek(struct loader *l, int64_t step, struct ckpt_err *err);
/* The next step; waits until it is ready; never ends.  A record that cannot be read fails here,
 * with file and record. */
int loader_next(struct loader *l, const struct loader_step **out, struct ckpt_err *err);

#endif
