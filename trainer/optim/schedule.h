/*
 * schedule - learning rate as a function of the optimizer step.
 *
 * The same doubles as transformers 5.17 optimization.py (get_*_schedule_* over torch's LambdaLR)
 * computes: step i (from 0) uses schedule_lr(..., i).
 */
#ifndef CKPT_TRAINER_OPTIM_SCHEDULE_H
#define CKPT_TRAINER_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT, SCHEDULE_CONSTANT_WITH_WARMUP, SCHEDULE_LINEAR, SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_MIN_LR, SCHEDULE_COSINE_WITH_RESTARTS, SCHEDULE_POLYNOMIAL,
    SCHEDULE_INVERSE_SQRT
};

struct schedule {
    enum schedule_kind kind;
    double  lr;                 /* peak */
    double  min_lr;             /* cosine_with_min_lr: the end; polynomial: lr_end */
    double  num_cycles;         /* cosine: 0.5; with restarts: hard restarts */
    double  power;              /* polynomial */
    int64_t warmup_steps;
    int64_t total_steps;
};

/* The final rate of a schedule: min_lr, or if that is NaN transformers' default: 1e-7 for
 * polynomial, 0 for others. */
double schedule_end(enum schedule_kind kind, double min_lr);
double schedule_lr(const struct schedule *s, int64_t step);
/* transformers' name: "linear", "cosine", ... ; false when unknown. */
bool schedule_parse(enum schedule_kind *out, const char *name);
const char *schedule_name(enum schedule_kind kind);
/* All names, space-separated, for an option row. */
const char *schedule_names(void);

#endif
