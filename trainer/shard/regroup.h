/*
 * regroup - from parts of each parameter to parts of all of them laid one after another.
 *
 * A rank's memory has its part of every parameter (flat.h); files of DeepSpeed's stages 1 and 2
 * have an equal part of the whole sequence.  The ranks exchange what the others' files want, a
 * window of each part at a time, in bounded memory: no rank ever has more than its own part and a
 * window.  Each element moves once.
 */
#ifndef CKPT_TRAINER_SHARD_REGROUP_H
#define CKPT_TRAINER_SHARD_REGROUP_H

#include "trainer/comm/comm.h"

/* The sequence: parameters whose parts are ds3_part's, and parts of the whole. */
struct regroup {
    const int64_t *numel;               /* [n] elements of each parameter, in order */
    size_t         n;
    int64_t        part;                /* elements of each rank's part of the sequence */
    int            rank, world_size;
    int64_t        window;              /* elements of a part that move at once; 0: by memory */
};

/* Both ends of the exchange. */
struct regroup_ends {
    /* Elements [start, start + count) of this rank's part of parameter i. */
    int (*read)(void *ctx, size_t i, int64_t start, int64_t count, float *to,
                struct ckpt_err *err);
    /* Elements [at, at + count) of this rank's part of the sequence; in order. */
    int (*put)(void *ctx, int64_t at, int64_t count, const float *from, struct ckpt_err *err);
    void *ctx;
};

/*
 * Collective.  A rank whose read or put fails goes on exchanging, and returns that failure at the
 * end: the others' files are complete or not without it, the caller's vote says so to all.
 */
int regroup(struct comm *c, const struct regroup *g, const struct regroup_ends *ends,
            struct ckpt_err *err);

#endif
