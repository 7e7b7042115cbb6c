/*
 * optim_state - the true weights and the moments of what a rank trains: where they lie, and one
 * step.
 *
 * Each array (true weights, two moments, the scales of coded moments) holds the trained parameters
 * in their order.  It is cut into chunks of neighbouring elements, at multiples of 256 of a
 * parameter, so that blocks of coded moments stay whole.  The first chunks lie on the device, as
 * many as it may hold; the others in pinned memory of the host, from where they pass a ring
 * (ring.h) at each step: fetched, stepped on the device, written back.  What is computed does not
 * depend on where a chunk lies.
 *
 * Of 8-bit moments bitsandbytes' optimizers leave some in f32: those of fewer than 4096 elements
 * (min_8bit_size), and, as HF Trainer configures them, those of every nn.Embedding, whose rows get
 * gradients of very different sizes.  Files have the matrices of all experts of a block as one
 * tensor; where one expert is no whole number of blocks they are f32 too.
 * Source: bitsandbytes 0.50.2, optim/optimizer.py; transformers 5.17, trainer_optimizer.py.
 */
#ifndef CKPT_TRAINER_SHARD_OPTIM_STATE_H
#define CKPT_TRAINER_SHARD_OPTIM_STATE_H

#include "trainer/ops/ops.h"
#include "trainer/shard/flat.h"
#include "trainer/shard/ring.h"

struct optim_state;

enum optim_state_array {
    OPTIM_STATE_MASTER,
    OPTIM_STATE_AVG,
    OPTIM_STATE_AVG_SQ,
    OPTIM_STATE_ABSMAX,
    OPTIM_STATE_ABSMAX_SQ,
    OPTIM_STATE_ARRAYS
};

/* How moments of parameter i are kept, where `wanted` is asked for. */
enum op_moments optim_state_kind(const struct params *params, size_t i, enum op_moments wanted);
/* The type of an array's numbers with moments of that kind, and the bytes of n elements of it. */
enum ckpt_dtype optim_state_type(enum optim_state_array of, enum op_moments kind);
size_t optim_state_bytes(enum optim_state_array of, enum op_moments kind, int64_t n);

/* Bytes of all moments of n elements of parameter i, which lacks some of AdamW's two. */
uint64_t optim_state_moment_bytes(const struct params *params, size_t i, enum op_moments wanted,
                                  int fewer, int64_t n);
/* How many of the two parameter i lacks, of a rule that lacks `fewer` everywhere; muon: hidden
 * matrices lack the second. */
int optim_state_fewer(const struct params *params, size_t i, int fewer, bool muon);

struct optim_state_opts {
    enum op_moments moments;            /* where a parameter may have them so */
    int      fewer;                     /* moments that a rule lacks of AdamW's two */
    bool     muon;                      /* hidden matrices have the first alone, and are not
                                           stepped here (zero_muon.c) */
    bool     master;                    /* true weights are here, else where the caller has them */
    int64_t  chunk;                     /* elements of a chunk; 0: CHUNK */
    uint64_t on_device;                 /* bytes of arrays that may lie there; 0 where something of
                                           the following is on the host */
    bool     grad_on_host;              /* gradients come with their chunk */
    size_t   rounded_on_host;           /* bytes of an element of the rounded copies, which leave
                                           with it; 0: they are on the device */
};

/* What a plan wants to know. */
struct optim_state_size {
    uint64_t device, host, ring;        /* arrays on either side; slots on the device */
};

/* Numbers of a group of parameters (param.group). */
struct optim_group {
    double lr, weight_decay;
    bool   muon;                        /* hidden matrices, which Muon steps */
};

/* What is stepped from and to: base pointers by flat's bases. */
struct optim_state_step {
    const struct adamw *adamw;
    const struct optim_group *group;    /* NULL: the next, and adamw's lr */
    double       weight_decay;          /* of parameters that decay */
    float       *master;                /* [flat->numel] on the device, where states have none */
    const float *grad;                  /* [flat->grad_numel] on the device, or pinned */
    void        *rounded;               /* [flat->numel] likewise; NULL: none */
    /* Called as soon as all of a layer has been given to the device, in order; NULL: nobody. */
    void       (*done)(void *ctx, int layer);
    void        *ctx;
};

/* flat and dev outlive it; events [event, event + OPTIM_STATE_EVENTS) are its own. */
enum { OPTIM_STATE_EVENTS = RING_EVENTS };
int optim_state_new(struct optim_state **out, const struct flat *flat,
                    const struct optim_state_opts *opts, struct device *dev, int event,
                    struct ckpt_err *err);
void optim_state_free(struct optim_state *s);
int optim_state_size(struct optim_state_size *out, const struct flat *flat,
                     const struct optim_state_opts *opts, struct ckpt_err *err);
void optim_state_step(struct optim_state *s, const struct optim_state_step *step);

/*
 * Where elements of an array lie, from element `at` of parameter i on: n of them one after another,
 * `at` a multiple of 256 for scales, of which there is one for so many.  On the host nothing is
 * waited for: work queued on the streams may still be on its way.
 */
struct optim_state_spot {
    void   *at;                         /* NULL: not there */
    int64_t n;
    bool    host;
};
struct optim_state_spot optim_state_spot(const struct optim_state *s, enum optim_state_array of,
                                         size_t i, int64_t at);

#endif
