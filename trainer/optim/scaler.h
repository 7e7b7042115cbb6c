/*
 * scaler - the loss scale of float16, which keeps small gradients from becoming zero.
 *
 * As DeepSpeed's DynamicLossScaler: a step whose gradient is not finite is skipped; from the
 * `hysteresis`-th such step on each halves the scale; after every `window` steps without one the
 * scale is doubled, and the patience restored.  A skipped step counts as a step of the run, but
 * neither the optimizer nor the learning rate schedule advances, as in DeepSpeed and HF Trainer.
 * A static scale is a dynamic one at its minimum.  Scales are powers of two if the options are:
 * multiplying and dividing are then exact.  Source: DeepSpeed 0.19, runtime/fp16/loss_scaler.py;
 * torch 2.15, amp/grad_scaler.py (the file).
 */
#ifndef CKPT_TRAINER_OPTIM_SCALER_H
#define CKPT_TRAINER_OPTIM_SCALER_H

#include "libckpt/commit.h"
#include "libckpt/file.h"

/* Named as in DeepSpeed's "fp16". */
struct scaler_opts {
    bool    on;                         /* else the scale is 1 and nothing is skipped */
    double  loss_scale;                 /* static; 0: dynamic */
    int64_t initial_scale_power;
    int64_t loss_scale_window;
    int64_t hysteresis;
    double  min_loss_scale;
};

struct scaler {
    struct scaler_opts o;
    double  scale;
    int64_t iter, last_overflow;        /* steps seen, and the last one skipped; -1: none */
    int64_t patience;                   /* overflows until the scale is halved, including that
                                           one */
    int64_t skipped;                    /* steps of the run skipped so far */
    int64_t in_row;                     /* of those the last ones, without a scaled loss */
};

void scaler_init(struct scaler *s, const struct scaler_opts *o);
/*
 * Record that a step was done, or skipped.  CKPT_ENO (reason "loss-scale") when the scale would
 * have to fall below its minimum.
 */
int scaler_update(struct scaler *s, bool overflow, struct ckpt_err *err);

/* Write scaler.pt: torch's GradScaler.state_dict(), and further fields that it does not have.
 * Takes out. */
int scaler_file_write(struct ckpt_out *out, const struct scaler *s, struct ckpt_err *err);
/* Read a scaler.pt, ours or torch's.  Takes file. */
int scaler_file_read(struct scaler *s, struct ckpt_file *file, struct ckpt_err *err);

#endif
