/*
 * states - the true weights and the moments of what a rank trains: where they lie, and one step.
 *
 * Each array (true weights, two moments, the scales of coded moments) holds the trained parameters
 * in their order.  It is cut into chunks of neighbouring elements, at multiples of 256 of a
 * parameter, so that blocks of coded moments stay whole.  The first chunks lie on the device, as
 * many as it may hold; the others in pinned memory of the host, from where they pass a ring
 * (ring.h) at each step: fetched, stepped on the device, written back.  What is computed does not
 * depend on where a chunk lies.
 */
#ifndef CKPT_TRAINER_SHARD_STATES_H
#define CKPT_TRAINER_SHARD_STATES_H

#include "trainer/ops/ops.h"
#include "trainer/shard/flat.h"
#include "trainer/shard/moments.h"
#include "trainer/shard/ring.h"

struct states;

enum states_array {
    STATES_MASTER, STATES_AVG, STATES_AVG_SQ, STATES_ABSMAX, STATES_ABSMAX_SQ, STATES_ARRAYS
};

struct states_opts {
    enum op_moments moments;            /* where a parameter may have them so (moments.h) */
    bool     master;                    /* true weights are here, else where the caller has them */
    int64_t  chunk;                     /* elements of a chunk; 0: CHUNK */
    uint64_t on_device;                 /* bytes of arrays that may lie there; 0 where something of
                                           the following is on the host */
    bool     grad_on_host;              /* gradients come with their chunk */
    size_t   rounded_on_host;           /* bytes of an element of the rounded copies, which leave
                                           with it; 0: they are on the device */
};

/* What a plan wants to know. */
struct states_size {
    uint64_t device, host, ring;        /* arrays on either side; slots on the device */
};

/* What is stepped from and to: base pointers by flat's bases. */
struct states_step {
    const struct adamw *adamw;
    double       weight_decay;          /* of parameters that decay */
    float       *master;                /* [flat->numel] on the device, where states have none */
    const float *grad;                  /* [flat->grad_numel] on the device, or pinned */
    void        *rounded;               /* [flat->numel] likewise; NULL: none */
};

/* flat and dev outlive it; marks [mark, mark + STATES_MARKS) are its own. */
enum { STATES_MARKS = RING_MARKS };
int states_new(struct states **out, const struct flat *flat, const struct states_opts *opts,
               struct device *dev, int mark, struct ckpt_err *err);
void states_free(struct states *s);
int states_size(struct states_size *out, const struct flat *flat, const struct states_opts *opts,
                struct ckpt_err *err);
void states_step(struct states *s, const struct states_step *step);

/*
 * Where elements of an array lie, from element `at` of parameter i on: n of them one after another,
 * `at` a multiple of 256 for scales, of which there is one for so many.  On the host nothing is
 * waited for: what the lanes were given may still be on its way.
 */
struct states_spot {
    void   *at;                         /* NULL: not there */
    int64_t n;
    bool    host;
};
struct states_spot states_spot(const struct states *s, enum states_array of, size_t i, int64_t at);
enum op_moments states_moments(const struct states *s, size_t i);

#endif
