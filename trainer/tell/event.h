/*
 * event - what a run tells its caller while it goes; rank 0's.
 */
#ifndef CKPT_TRAINER_TELL_EVENT_H
#define CKPT_TRAINER_TELL_EVENT_H

#include <stdint.h>

enum run_event_kind {
    RUN_EVENT_STEP, RUN_EVENT_LOG, RUN_EVENT_EVAL, RUN_EVENT_SAVE, RUN_EVENT_KINDS
};

/* Numbers that are not known yet are NaN. */
struct run_event {
    enum run_event_kind kind;
    int64_t     step, max_steps;
    double      epoch, num_epochs;
    double      loss;                   /* of the step, or the mean since the last log line */
    double      grad_norm, learning_rate, tokens_per_second;
    double      eval_loss;              /* the newest */
    double      memory;                 /* of the device, MiB */
    const char *checkpoint;             /* the newest of this run; NULL: none */
};

typedef void run_event_fn(void *ctx, const struct run_event *e);

#endif
