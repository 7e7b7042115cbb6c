/*
 * fit - what a model takes of a device's memory, told before anything is allocated, and what of it
 * may be changed so that it fits.
 *
 * Every byte that zero and model allocate is counted by the rooms that do so; what the driver and
 * the runtime keep for themselves the device has taken off its room.  Nothing is allocated after
 * what is planned here.
 */
#ifndef CKPT_TRAINER_RUN_FIT_H
#define CKPT_TRAINER_RUN_FIT_H

#include "trainer/model/model.h"
#include "trainer/ops/ops.h"
#include "trainer/shard/zero.h"

struct fit {
    struct zero_size zero;
    uint64_t activations, workspace;    /* the model's, and what its operations need */
    uint64_t all;                       /* on the device */
    uint64_t room;                      /* bytes that may be taken; UINT64_MAX: not known */
    enum recompute recompute;           /* what was chosen */
    bool     paged;                     /* likewise: states are on the host, but so many bytes */
    uint64_t optim_on_device;
};

struct fit_opts {
    const struct arch *arch;
    struct device     *dev;
    int                world_size;
    struct model_opts  model;           /* recompute: the least there may be */
    bool               choose;          /* another level may be taken where memory is short */
    struct zero_opts   zero;            /* paged: as many states as must may go to the host;
                                           offload: all do */
    uint64_t           room;
    int64_t            batch;           /* samples of the micro-batch that model is sized for, */
    const char        *batch_option;    /* and the setting that says so; 0 and NULL: unknown */
};

/*
 * The first that fits of: all as asked; norms made again, with choose; states on the host, where
 * they may be paged.  CKPT_ENOMEM when nothing does, with figures that add up, and a hint of what
 * would, if anything.
 */
int fit_find(struct fit *out, const struct fit_opts *opts, struct ckpt_err *err);
/* Bytes that the host can still give; UINT64_MAX when the system does not tell. */
uint64_t fit_host_free(void);

#endif
