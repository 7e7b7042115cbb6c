/* attention - a block's first half: norm, projections, attention, output projection, residual. */
#ifndef CKPT_TRAINER_MODEL_ATTENTION_H
#define CKPT_TRAINER_MODEL_ATTENTION_H

#include <stdint.h>

#include "trainer/ops/ops.h"

struct arch;
struct block_bufs;
struct layer;
struct pass;

/* Position terms of scores, and angles of rope; on the device, NULL: not in this model. */
struct position_tables {
    float   *slopes;                    /* ALiBi [H] */
    int32_t *bucket[2];                 /* buckets by distance: a decoder's, an encoder's */
    int64_t  reach[2];                  /* distance from which on the bucket is the same */
    float   *rope, *rope_host;          /* [rope_rows][R]: rope_table */
    int64_t  rope_rows, rope_regime;
};

/* The cache of a generation session as one block's attention uses it. */
struct cache_view {
    struct op_cached op;                /* all but out and in */
    /* The first `rows` segments have a row each, of at most rows_max_keys keys, and are an
     * operation of their own; the others' first rows are start [n_seg - rows + 1], from the
     * first of theirs on.  rows 0: all segments are one operation. */
    int64_t          rows, rows_max_keys;
    const int32_t   *start;
    void            *cross;             /* keys and values of the encoder's rows, as BUF_KVX */
    const int32_t   *key_start, *key_end;   /* [n_seg] which of these keys a segment sees */
};

/* y1 ... h1, and back: dh becomes the gradient of h. */
void attention_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b);
void attention_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b,
                   void *dh);
/* Width of the fused matrix of queries, keys and values. */
int64_t attention_qkv_width(const struct arch *a);
/* slopes[H] of ALiBi, as transformers' build_alibi_tensor computes them. */
void attention_alibi_slopes(float *slopes, int64_t n_head);

#endif
