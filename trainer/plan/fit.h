/*
 * fit - how much of a device's memory a model takes, before anything is allocated, and which
 * settings would make it fit.
 *
 * Every byte that zero and model allocate is counted by the same code that allocates it; the device
 * subtracts what its driver and runtime use from its free bytes.  Nothing is allocated beyond this
 * plan.
 */
#ifndef CKPT_TRAINER_PLAN_FIT_H
#define CKPT_TRAINER_PLAN_FIT_H

#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/shard/zero.h"

struct fit {
    struct zero_size zero;
    uint64_t activations, workspace;    /* the model's, and what its operations need */
    uint64_t all;                       /* on the device */
    uint64_t free_bytes;                /* that may be taken; UINT64_MAX: not known */
    enum recompute recompute;           /* the level chosen */
    bool     paged;                     /* likewise: states are on the host, but so many bytes */
    uint64_t optim_on_device;
    bool     keep_weights, keep_grads, few;     /* likewise, of stage 3 (zero.h) */
};

struct fit_opts {
    const struct arch *arch;
    struct device     *dev;
    int                world_size;
    struct model_opts  model;           /* recompute: the least there may be */
    bool               choose;          /* another level may be taken where memory is short */
    struct zero_opts   zero;            /* paged: as many states as must may go to the host;
                                           offload: all do */
    bool               keep, reshard;   /* stage 3 must keep gathered weights, or must not */
    uint64_t           free_bytes;
    int64_t            batch;           /* samples of the micro-batch that model is sized for, */
    const char        *batch_option;    /* and the setting that says so; 0 and NULL: unknown */
};

/*
 * The first way that fits: as asked, with as much kept of what stage 3 gathers as there is memory
 * for; with norms recomputed, where choose is set; with states on the host, where they may be
 * paged.  CKPT_ENOMEM when none does, with figures that add up, and a hint
 * at one that would, if there is any.
 */
int fit_find(struct fit *out, const struct fit_opts *opts, struct ckpt_err *err);
/* Free bytes of the host; UINT64_MAX when the system reports none. */
uint64_t fit_host_free(void);

#endif
