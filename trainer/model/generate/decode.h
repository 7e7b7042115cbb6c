/*
 * decode - a generation session, shared by decode.c, decode_run.c, decode_move.c.
 */
#ifndef CKPT_TRAINER_MODEL_GENERATE_DECODE_H
#define CKPT_TRAINER_MODEL_GENERATE_DECODE_H

#include "trainer/model/generate/space.h"
#include "trainer/model/pass.h"

/* Steps of full batches, whose keys grow, between chunks that hold a prompt. */
#define DECODE_GRAPHS 4

/* Which part of a chunk belongs to which sequence. */
struct chunk_rows {
    int32_t *start;                 /* [n + 1] first row */
    int32_t *seq, *first, *past;    /* [n] */
    int64_t  n, rows, max_keys;
    int64_t  single, single_keys;   /* how many segments at the front have one row; their most
                                       keys */
};

/* The sizes that the arguments of a step's operations depend on, besides the session. */
struct shape {
    const struct model_weights *w;
    int64_t                     rows, max_keys, max_enc;
};

/* A step of that shape as the device runs it at once; graph NULL: the shape was met once. */
struct step_graph {
    struct shape     shape;         /* rows 0: this place is free */
    struct op_graph *graph;
    uint64_t         used;          /* the step that last had the shape */
};

/*
 * Sequences begin and end at any time, and each takes as many rows of the cache as it may need,
 * one after another: with uniform places, sequence i has the rows from i * max_len on.
 */
struct decode {
    struct model      *m;
    struct model       view;        /* the model, with this session's buffers instead of its own */
    int64_t            n_seq, max_len, chunk;
    int64_t            rows, enc_rows;  /* of the cache, and of the encoder's keys */
    struct space       space, enc_space;
    int                first;       /* the decoder's first block */
    int32_t           *len;         /* [n_seq] tokens in the cache; host */
    int32_t           *at, *room;   /* [n_seq] first row in the cache, and number of rows; host */
    struct chunk_rows  host;        /* of the current chunk */
    int32_t           *feed, *feed_host;        /* indices for a chunk's operations */
    int32_t           *seg_start, *seg_first, *seg_past, *last_rows;    /* parts of it, on the
                                                                           device */
    int32_t           *rest_start;  /* likewise: struct cache_view's start */
    int32_t           *done;        /* [n_seq] tokens of this call already fed; host */
    int32_t           *ids, *positions;     /* [chunk] of the current chunk; host */
    int32_t           *past, *n_past;       /* [n_seq][max_len], [n_seq]: all tokens fed; NULL
                                               where a prefix is never recomputed */
    int32_t           *replay;              /* [n_seq * max_len] a prefix that is fed again */
    void              *k, *v;       /* all layers */
    uint64_t           layer_bytes;
    void              *cross;       /* keys and values of the encoder's rows: a layer
                                       [rows][2 H d] */
    uint64_t           cross_bytes; /* of a layer */
    int32_t           *enc_len;     /* [n_seq]; 0: no rows; host */
    int64_t           *enc_first;   /* [n_seq] each sequence's first row in cross; host */
    const int32_t     *key_start, *key_end;     /* of the chunk's segments; in feed */
    int32_t           *none;        /* [n_seq + 1] zeros: documents without rows of the decoder */
    void              *spare;       /* a layer of the cache, for decode_reorder */
    struct block_bufs  bufs;
    void              *next;        /* the other of the residual stream's two buffers */
    void              *top;         /* output of head_top, on the device */
    unsigned char     *top_host;
    struct step_graph  graphs[DECODE_GRAPHS];
    uint64_t           steps;       /* so far */
    void              *recorded_h;  /* where the residual stream of all graphs ends */
    bool               plain;       /* this device has no graphs */
    bool               split;       /* single rows beside prompts are an operation of their own */
    struct plan        plan;
    void              *arena;
    struct ckpt_arena  host_arena;  /* holds the host's arrays */
};

/* decode_run.c: run the chunk in d->host through all blocks; returns where its residual stream
 * ends. */
void *decode_chunk(struct decode *d, struct pass *p, const int32_t *n_new);
/* Logits of the sequences whose last new token is in the chunk: to the host, or, where that is
 * NULL, to the sequence's place on the device. */
void decode_chunk_logits(struct decode *d, const struct pass *p, const int32_t *n_new,
                         const void *h, float *logits);
/* Elements of d->feed. */
int64_t decode_feed_size(const struct decode *d);

#endif
