/*
 * estimate - what a run will take and how long, before it begins: data, memory of the host, disk,
 * FLOPs, time.
 */
#ifndef CKPT_TRAINER_PLAN_ESTIMATE_H
#define CKPT_TRAINER_PLAN_ESTIMATE_H

#include "trainer/checkpoint/size.h"
#include "trainer/run/data.h"

/* Bytes are of memory or of files; counts of tokens include an encoder's. */
struct estimate {
    int     world_size, zero_stage;
    int64_t parameters, trained;
    struct fit fit;                     /* of a rank's device */
    uint64_t host;                      /* of a rank: what lies on the host, on CPUs everything */
    uint64_t snapshot;                  /* beside it for asynchronous saves; 0: none are */
    const char *saves;                  /* asynchronous; or why steps wait for them */

    int64_t rows, steps, steps_per_epoch, first_step;
    int64_t dropped;                    /* further rows, which are too long */
    int64_t sampled;                    /* rows that were read; fewer than rows: an estimate */
    int64_t shortest, longest, p95;     /* tokens of a row */
    double  mean;
    double  truncated, supervised;      /* shares: of rows cut, of tokens with a loss */
    double  epochs, tokens;             /* of the run */
    double  efficiency;                 /* tokens of a full micro-batch; NaN: not packed */

    struct checkpoint_size checkpoint;
    int64_t  kept;                      /* checkpoints that lie there at most, one being written
                                           among them */
    uint64_t disk;                      /* all of them, and the final model */
    uint64_t disk_free;                 /* UINT64_MAX: not known */

    double  flos_step, flos;            /* as total_flos counts them */
    double  rate;                       /* FLOP/s of a rank's products, timed; 0: not known */
    double  seconds_step, seconds;      /* products alone, of the steps to come: a lower bound;
                                           NaN: not known */
};

/* What a run knows of itself. */
struct estimate_of {
    const struct settings *settings;
    const struct session  *session;
    const struct run_data *data;
    int64_t     steps, first_step;
    int64_t     saves;                  /* checkpoints that it writes */
    uint64_t    snapshot;
    const char *how;
};

/* Rank 0's; on a device that is there a product is timed for a fifth of a second. */
int estimate_make(struct estimate *out, const struct estimate_of *of, struct ckpt_err *err);
/* Lines of the log, and a warning where the disk has not enough. */
void estimate_tell(const struct estimate *e, const char *output_dir);

#endif
