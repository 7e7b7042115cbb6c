/*
 * zero_own - the fields of zero, for zero*.c alone.
 */
#ifndef CKPT_TRAINER_SHARD_ZERO_OWN_H
#define CKPT_TRAINER_SHARD_ZERO_OWN_H

#include "trainer/shard/zero.h"

/* Slots 0 and 1 are those of the first and the last layer, which the head keeps while others pass;
 * the others are for blocks: one in work, one that comes and one that leaves, or two where all
 * waits for each other. */
enum { SLOT_BLOCKS = 2, N_SLOTS = 5 };

/* Buffer for one layer. */
struct slot {
    float *whole;               /* [capacity] */
    int    layer;               /* -1: nothing in it */
    int    users;
    bool   stale;               /* trained parameters have changed since they were gathered */
    int64_t taken;              /* when a layer was last given this slot, counted in `slots` */
};

/* Those of one kind: layers pass through a few, or each layer has its own, which it keeps. */
struct slots {
    struct slot *slot;          /* [n] */
    int          n;
    bool         keep;
    int64_t      taken;         /* times that a layer was given one of them */
};

/* Sums of a rank's own gradients, on their way between its host memory and the slots of whole
 * layers.  Two, so that one layer's leave while the next one's are made. */
enum { N_OWN = 2 };
struct own_grads {
    float *at[N_OWN];           /* on the device: [0] the largest layer's part, [1] a block's */
    int    turn;                /* the one used last */
    int    unsquared;           /* layer whose sums lie in that one, without their squares; -1 */
};

struct zero {
    struct flat          flat;
    struct zero_opts     opts;
    float               *master;        /* [flat.numel] true weights; NULL: states have those of
                                           what is trained, the others are rounded alone */
    float               *grads;         /* [flat.grad_numel] of the step in work */
    struct optim_state       *optim;        /* NULL: nothing is trained */
    struct zero_factored     *factored;     /* NULL: not Adafactor */
    struct zero_muon         *muon;         /* NULL: not Muon, or a copy */
    struct device       *dev;
    struct comm         *comm;          /* ranks that own parts; stage 0: all ranks */
    struct comm         *replicas;      /* ranks whose gradients of the same part are summed; NULL:
                                           none */
    struct model_weights door;
    bool                 sharded;       /* stage 3 and more than one rank */
    bool                 streamed;      /* rounded and grads lie on the host (zero_stream.c) */
    enum ckpt_dtype      type;          /* of the weights that a pass sees */
    void                *rounded;       /* [flat.numel] of that type; NULL when it is f32 */
    struct slots         weight, grad;
    float               *parts;         /* [world_size][largest layer part]: gather and spread,
                                           where a collective moves all of a layer */
    float               *reduced;       /* [largest layer part]: where sums are added to others */
    struct own_grads     own;           /* streamed, of several ranks on GPUs */
    void                *narrow, *narrow_own;   /* [largest layer_grad], [largest layer part] of
                                           opts.reduce: what travels, and its sums */
    float               *layer_host, *parts_host;       /* [largest layer], its parts of all
                                           ranks; once asked for */
    struct op_verdict   *verdict;       /* on the device */
    double              *squares;       /* of gradients, on the device; streamed: one for each layer
                                           after it, of the rank's part */
    int                  before;        /* streamed: the layer that was asked for last */
    bool                 back;          /* likewise: gradients are asked for */
    unsigned char       *stage;         /* [2][ZERO_STAGE], pinned, of discrete memory */
    bool                *fresh;         /* [n_layers]: no pass has added its gradients yet; what a
                                           pass writes was not zeroed */
    bool                *reached;       /* [n_layers]: gradients have been summed over the ranks */
    bool                *replicated;    /* [n_layers]: and over the replicas */
    bool                 last;          /* the pass in work is the step's last */
    bool                 is_copy;       /* it has what a checkpoint holds (zero_copy.h) */
    bool                 copied;        /* a copy may be in work: ZERO_EVENT_COPY is its end */
};

/* Bytes that move at once between the host and arrays: a fourth of what is mostly asked for, so
 * that copies and conversions overlap. */
enum { ZERO_STAGE = 1 << 20 };
/* Events: the stage's halves each way; the optimizer state's; the end of
 * a copy (zero_copy.h); three of own gradients: the sums are there, their squares are made, they
 * have left; three of a slot: it has been filled,
 * what used it is done, what was in it has left.  Of more slots than ZERO_IN_FLIGHT some share
 * theirs, and wait for each other. */
enum { ZERO_OWN_SUMMED, ZERO_OWN_SQUARED, ZERO_OWN_LEFT, ZERO_OWN_MARKS };
enum { ZERO_FILLED, ZERO_USED, ZERO_LEFT, ZERO_MARKS };
enum { ZERO_IN_FLIGHT = 256 };
enum { ZERO_EVENT_MAIN, ZERO_EVENT_OUT, ZERO_EVENT_IN = ZERO_EVENT_OUT + 2,
       ZERO_EVENT_OPTIM = ZERO_EVENT_IN + 2,
       ZERO_EVENT_COPY = ZERO_EVENT_OPTIM + OPTIM_STATE_EVENTS,
       ZERO_EVENT_OWN = ZERO_EVENT_COPY + 1,
       ZERO_EVENT_SLOTS = ZERO_EVENT_OWN + N_OWN * ZERO_OWN_MARKS,
       ZERO_EVENTS = ZERO_EVENT_SLOTS + 2 * ZERO_IN_FLIGHT * ZERO_MARKS };

/* -- slots (zero.c) ---------------------------------------------------------------------------- */

/* A slot that holds the layer, or a free one emptied for it; NULL when all are in use. */
struct slot *zero_slot(const struct zero *z, struct slots *of, int layer);
/* The slots that a layer may be in. */
void zero_slots_of(const struct zero *z, const struct slots *of, int layer, int *from, int *end);
/* The slot of a layer that is asked for; one that must not be used, and a broken device, when more
 * are in use than planned. */
struct slot *zero_slot_now(struct zero *z, struct slots *of, int layer);
/* The event of a slot. */
int zero_mark(const struct zero *z, const struct slots *of, const struct slot *s, int what);
/* The layer that follows in this pass; -1: not known. */
int zero_next(const struct zero *z, int layer);
/* Work of a stream from here on comes after what another has been given so far. */
void zero_follow(struct zero *z, enum op_stream stream, enum op_stream other);

/* -- a step (zero_step.c) ---------------------------------------------------------------------- */

/* What was gathered is stale. */
void zero_forget(struct zero *z);

/* -- the door and a step, where layers belong to several ranks (zero_ranks.c) ------------------ */

const void *zero_ranks_acquire(struct zero *z, int layer);
void zero_ranks_release(struct zero *z, struct slot *s);
void *zero_ranks_grad(struct zero *z, int layer);
void zero_ranks_grad_done(struct zero *z, int layer);
void zero_ranks_reduce(struct zero *z);
void zero_ranks_stepped(void *ctx, int layer);       /* optim_state_step.done */
/* This rank's gradients of a layer become the sums of its replicas'. */
void zero_ranks_sum(struct zero *z, int layer);
/* A number of each rank on the device becomes their sum. */
void zero_ranks_add(struct zero *z, double *x);

/* -- likewise, where weights and gradients lie on the host (zero_stream.c): of one rank -------- */

const void *zero_stream_acquire(struct zero *z, int layer);
void zero_stream_release(struct zero *z, struct slot *s);
void *zero_stream_grad(struct zero *z, int layer);
void zero_stream_grad_done(struct zero *z, int layer);
void zero_stream_ready(struct zero *z);         /* slots have been zeroed in the main order */
void zero_stream_begin(struct zero *z);
void zero_stream_reduce(struct zero *z);
/* And of several on GPUs.  A rank's part of a layer's weights goes to its places in the slot, from
 * where it is gathered on OP_STREAM_COMM. */
void zero_stream_bring(struct zero *z, const struct slot *s, int layer);
/* Where the sums of a layer are made [layer part], and what earlier passes made of them already is;
 * afterwards they leave.  Both in the order of OP_STREAM_COMM. */
float *zero_stream_sums(struct zero *z, int layer);
void zero_stream_summed(struct zero *z, int layer);
/* All of a step's sums are on the host after it. */
void zero_stream_settle(struct zero *z);

void zero_stream_judge(struct zero *z, double max_norm, double scale);
void zero_stream_stepped(struct zero *z);

/* -- Adafactor (zero_factored.c) --------------------------------------------------------------- */

/* z->factored, freed with z; sums: room for a step's, not of a copy. */
int zero_factored_new(struct zero *z, bool sums, struct ckpt_err *err);
void zero_factored_free(struct zero *z);
/* Into those of a copy, on OP_STREAM_OUT. */
void zero_factored_copy(struct zero *to, struct zero *from);
void zero_factored_step(struct zero *z, const struct optim_state_step *s);

/* -- Muon (zero_muon.c) ------------------------------------------------------------------------ */

/* z->muon, freed with z. */
int zero_muon_new(struct zero *z, struct ckpt_err *err);
void zero_muon_free(struct zero *z);
/* Step the hidden matrices. */
void zero_muon_step(struct zero *z, const struct optim_state_step *s);

/* -- copies (zero_copy.c) ---------------------------------------------------------------------- */

/* Work of the main order from here on comes after the copy that may be in work. */
void zero_copied(struct zero *z);

/* -- between arrays and the host (zero_fill.c) ------------------------------------------------- */

/* Where elements of an array lie one after another, and in which type. */
struct zero_spot {
    unsigned char  *at;                 /* NULL: the rank has none */
    enum ckpt_dtype type;
    int64_t         n;
    bool            host;
};
/* From element `at` of the rank's part of parameter i on. */
struct zero_spot zero_spot(const struct zero *z, enum zero_array of, size_t i, int64_t at);
/* Work queued on the streams has reached the host. */
void zero_settle(struct zero *z);

#endif
