/*
 * shuffle - which rank sees which samples when: a pure function of (n, seed, epoch, world,
 * micro-batch), so that a position is a number and nothing is replayed on resume.
 *
 * Order of an epoch: torch.randperm(n) of a generator seeded with seed + epoch, as HF Trainer
 * does through accelerate's SeedableRandomSampler.  The order is cut into batches of micro_batch
 * entries; batch j belongs to rank j mod world.  enum shuffle_tail says how an incomplete last
 * batch is treated.  An optimizer step is grad_accum micro-batches of every rank; the last step
 * of an epoch may have fewer.  So step s covers the entries [s, s + 1) * micro_batch * world *
 * grad_accum of the order: as long as that product is the same, a run may resume on another
 * number of ranks at the same position.
 */
#ifndef CKPT_TRAINER_DATA_SHUFFLE_H
#define CKPT_TRAINER_DATA_SHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

enum shuffle_tail {
    /* As HF Trainer: completed from the start of the epoch's order.  With one rank nothing is
     * completed: the last micro-batch is short. */
    SHUFFLE_WRAP,
    SHUFFLE_DROP,       /* left out */
    /* Completed as WRAP, but added entries are marked (shuffle_slice.real): for evaluation,
     * where every sample counts once and all ranks do the same number of passes. */
    SHUFFLE_MASK
};

struct shuffle_opts {
    int64_t           n;                /* items, >= 1 */
    uint64_t          seed;
    bool              shuffle;          /* false: order 0..n-1 in every epoch */
    enum shuffle_tail tail;
    int64_t           micro_batch;      /* items of one rank's micro-batch, >= 1 */
    int64_t           grad_accum;       /* micro-batches of a step, >= 1 */
    int               rank, world_size;
    /* Distribution of torch's DistributedSampler: rank r sees entries r, r + world, ... of the
     * order, which is completed from its start (SHUFFLE_WRAP) or cut (SHUFFLE_DROP). */
    bool              distributed;
    /* As HF Trainer's group_by_length: the order is cut into pieces of up to 50 groups, each is
     * sorted by length, longest first, and the longest sample of all comes first.  group: the
     * samples of a rank's step. */
    const int32_t    *length;           /* [n], kept; NULL: do not group */
    int64_t           group;            /* >= 1 with length */
};

struct shuffle;

/* CKPT_ECONFIG when a number is out of range or when SHUFFLE_DROP leaves nothing. */
int shuffle_new(struct shuffle **out, const struct shuffle_opts *opts, struct ckpt_err *err);
void shuffle_free(struct shuffle *s);
int64_t shuffle_micros(const struct shuffle *s);        /* micro-batches of a rank per epoch */
int64_t shuffle_steps(const struct shuffle *s);         /* steps of an epoch, rounded up */

/* One rank's micro-batch: entries first + k * stride, k < n, of the epoch's order, taken
 * cyclically. */
struct shuffle_slice {
    int64_t first, n, stride;
    int64_t real;               /* how many of n are not added ones (see SHUFFLE_MASK) */
};
void shuffle_slice(const struct shuffle *s, int64_t i_micro, struct shuffle_slice *out);
/* Step i_step of the epoch consists of its micro-batches [*first, *first + return). */
int64_t shuffle_step(const struct shuffle *s, int64_t i_step, int64_t *first);

/*
 * The order of an epoch, [n]; borrowed until another epoch is requested.  Cheap when the epoch is
 * the last requested one.  One thread.
 */
const int64_t *shuffle_order(struct shuffle *s, int64_t epoch);

#endif
