/*
 * zero_own - the fields of zero, for zero*.c alone.
 */
#ifndef CKPT_TRAINER_SHARD_ZERO_OWN_H
#define CKPT_TRAINER_SHARD_ZERO_OWN_H

#include "trainer/shard/zero.h"

/* Slots 0 and 1 are those of the first and the last layer, which the head keeps while others pass;
 * the others are for blocks, the last of them where layers stream alone. */
enum { SLOT_BLOCKS = 2, N_SLOTS = 5 };

/* Buffer for one gathered layer. */
struct slot {
    float *whole;               /* [capacity] */
    int    layer;                /* -1: nothing in it */
    int    users;
};

struct zero {
    struct flat          flat;
    struct zero_opts     opts;
    float               *master;        /* [flat.numel] true weights; NULL: states have those of
                                           what is trained, the others are rounded alone */
    float               *grads;         /* [flat.grad_numel] of the step in work */
    struct optim_state       *optim;        /* NULL: nothing is trained */
    struct device       *dev;
    struct comm         *comm;
    struct model_weights door;
    bool                 sharded;       /* stage 3 and more than one rank */
    bool                 streamed;      /* rounded and grads lie on the host (zero_stream.c) */
    enum ckpt_dtype      type;          /* of the weights that a pass sees */
    void                *rounded;       /* [flat.numel] of that type; NULL when it is f32 */
    struct slot          weight[N_SLOTS];
    struct slot          grad[N_SLOTS];
    float               *parts;         /* [world_size][largest layer part]: gather and spread */
    float               *reduced;       /* [largest layer part] */
    float *layer_host; /* [largest layer], once asked for, where one rank has all */
    struct op_verdict   *verdict;       /* on the device; streamed: one for each layer after it */
    int                  before;        /* streamed: the layer that was asked for last */
    bool                 back;          /* likewise: gradients are asked for */
    unsigned char       *stage;         /* [2][ZERO_STAGE], pinned, of discrete memory */
    bool                *fresh;         /* [n_layers]: no pass has added its gradients yet; what a
                                           pass writes was not zeroed */
};

/* Bytes that move at once between the host and arrays: a fourth of what is mostly asked for, so
 * that copies and conversions overlap. */
enum { ZERO_STAGE = 1 << 20 };
/* Events: the stage's halves each way; the rest belongs to the optimizer state. */
enum { ZERO_EVENT_MAIN, ZERO_EVENT_OUT, ZERO_EVENT_IN = ZERO_EVENT_OUT + 2,
       ZERO_EVENT_OPTIM = ZERO_EVENT_IN + 2,
       ZERO_EVENT_SLOTS = ZERO_EVENT_OPTIM + OPTIM_STATE_EVENTS };

/* A slot that holds the layer, or a free one emptied for it; NULL when all are in use. */
struct slot *zero_slot(const struct zero *z, struct slot *slot, int layer);
/* The slots that a layer may be in. */
void zero_slots_of(const struct zero *z, int layer, int *from, int *end);
/* Work queued on the streams has reached the host. */
void zero_settle(struct zero *z);
/* The door and a step, where weights and gradients lie on the host. */
const void *zero_stream_acquire(struct zero *z, int layer);
void zero_stream_release(struct zero *z, struct slot *s);
void *zero_stream_grad(struct zero *z, int layer);
void zero_stream_grad_done(struct zero *z, int layer);
void zero_stream_ready(struct zero *z);         /* slots have been zeroed in the main order */
void zero_stream_begin(struct zero *z);
void zero_stream_reduce(struct zero *z);
void zero_stream_judge(struct zero *z, double max_norm, double scale);
void zero_stream_stepped(struct zero *z);
/* What was gathered is stale. */
void zero_forget(struct zero *z);
/* A layer's weights or gradients gathered into a slot of f32; sharded only. */
void zero_gather(struct zero *z, int layer, float *whole, const void *part, enum ckpt_dtype type);

#endif
