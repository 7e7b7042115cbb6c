/*
 * schedule - learning rate as a function of the optimizer step.
 *
 * The same doubles as transformers 5.23 optimization.py (get_*_schedule_* over torch's LambdaLR,
 * ReduceLROnPlateau) and DeepSpeed 0.19 runtime/lr_schedules.py compute: step i (from 0) uses
 * schedule_lr(..., i).  Only reduce_lr_on_plateau has a state: what evaluations gave.
 */
#ifndef CKPT_TRAINER_OPTIM_SCHEDULE_H
#define CKPT_TRAINER_OPTIM_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "libckpt/commit.h"
#include "libckpt/fail.h"
#include "libckpt/file.h"

enum schedule_kind {
    SCHEDULE_CONSTANT, SCHEDULE_CONSTANT_WITH_WARMUP, SCHEDULE_LINEAR, SCHEDULE_COSINE,
    SCHEDULE_COSINE_WITH_MIN_LR, SCHEDULE_COSINE_WARMUP_WITH_MIN_LR, SCHEDULE_COSINE_WITH_RESTARTS,
    SCHEDULE_POLYNOMIAL, SCHEDULE_INVERSE_SQRT, SCHEDULE_WARMUP_STABLE_DECAY,
    SCHEDULE_REDUCE_ON_PLATEAU,
    SCHEDULE_WARMUP_LR, SCHEDULE_WARMUP_DECAY_LR, SCHEDULE_WARMUP_COSINE_LR, SCHEDULE_ONE_CYCLE,
    SCHEDULE_KINDS
};

/* Keys of lr_scheduler_kwargs, by the names they have there.  NaN and -1: not given. */
struct schedule_keys {
    double  num_cycles, power;
    double  min_lr, lr_end, min_lr_rate, warmup_lr_rate, min_lr_ratio;
    int64_t timescale, num_decay_steps, num_stable_steps;
    int     warmup_type, decay_type;    /* of warmup_stable_decay: linear, cosine, 1-sqrt; of
                                           DeepSpeed's: log, linear */
    /* ReduceLROnPlateau */
    int     mode, threshold_mode;       /* min, max; rel, abs */
    double  factor, threshold, eps;
    int64_t patience, cooldown;
    /* WarmupLR, WarmupDecayLR, WarmupCosineLR */
    double  warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio;
    int64_t warmup_num_steps, total_num_steps;
    /* OneCycle */
    double  cycle_min_lr, cycle_max_lr, decay_lr_rate, cycle_min_mom, cycle_max_mom, decay_mom_rate;
    int64_t cycle_first_step_size, cycle_second_step_size, cycle_first_stair_count,
            cycle_second_stair_count, decay_step_size;
    bool    cycle_momentum;
};

struct schedule {
    enum schedule_kind kind;
    double  lr;                 /* peak */
    int64_t warmup_steps;
    int64_t total_steps;
    struct schedule_keys key;
    struct {
        double  best;
        int64_t bad, cooling;           /* evaluations without an improvement; to be passed over */
        int64_t reductions, seen;
    } plateau;
};

/*
 * A schedule of that name and those kwargs (NULL: none).  min_lr is the setting of that name, NaN
 * where it is not given.  CKPT_ECONFIG names what is wrong or missing.
 */
int schedule_init(struct schedule *s, const char *name, double lr, double min_lr,
                  const char *kwargs, struct ckpt_err *err);
/* Then, once it is known, how long the run is. */
void schedule_span(struct schedule *s, int64_t warmup_steps, int64_t total_steps);
/* The rate of parameters whose peak is base. */
double schedule_lr(const struct schedule *s, double base, int64_t step);
/* OneCycle's momentum of that step, for AdamW's betas; false where a schedule has none. */
bool schedule_betas(const struct schedule *s, int64_t step, double *beta1, double *beta2);
/* What an evaluation gave; a schedule that looks at evaluations may reduce its rate: true. */
bool schedule_measure(struct schedule *s, double metric);

/* transformers' name: "linear", "cosine", ... or DeepSpeed's; false when unknown. */
bool schedule_parse(enum schedule_kind *out, const char *name);
const char *schedule_name(enum schedule_kind kind);
/* Its keys in lr_scheduler_kwargs, space-separated. */
const char *schedule_key_names(enum schedule_kind kind);

/* What a schedule has for one of the keys of its kind. */
struct schedule_value {
    const char *name;
    bool        given;          /* it has a value, which is not that of the reference's signature */
    bool        is_int;
    double      number;         /* NaN: no value */
    char        text[64];       /* the same in words; "none" */
};

/* The key at that place, from 0; false behind the last one. */
bool schedule_key(struct schedule_value *out, const struct schedule *s, size_t i);

/* Write scheduler.pt for groups of these peaks, as the schedule's own class does; steps: optimizer
 * steps done.  Takes out. */
int schedule_file_write(struct ckpt_out *out, const struct schedule *s, const double *base,
                        size_t n_group, int64_t steps, struct ckpt_err *err);
/* Read the state of a schedule that has one from a scheduler.pt.  Takes file. */
int schedule_file_read(struct schedule *s, struct ckpt_file *file, struct ckpt_err *err);

#endif
