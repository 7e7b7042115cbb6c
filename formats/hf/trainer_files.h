/*
 * trainer_files - HF Trainer's files beside the weights: optimizer.pt, scheduler.pt,
 * rng_state.pth, trainer_state.json, as values and bytes.
 *
 * Source: transformers 5.17 trainer.py and trainer_callback.py, torch 2.15 optim/lr_scheduler.py
 * and CPUGeneratorImpl.cpp; the object graphs are those of files written by these.
 */
#ifndef CKPT_FORMATS_HF_TRAINER_FILES_H
#define CKPT_FORMATS_HF_TRAINER_FILES_H

#include "formats/container/value.h"
#include "libckpt/commit.h"

#define MT_WORDS 624

/* The three generators of a Python training process, as they are after set_seed(seed). */
struct rng_streams {
    uint64_t seed;
    uint32_t python[MT_WORDS];          /* random: init_by_array, position MT_WORDS */
    uint32_t numpy[MT_WORDS];           /* numpy.random.seed: init_genrand, position MT_WORDS */
    uint32_t torch[MT_WORDS];           /* torch.manual_seed: init_genrand, one word left */
};

/* random.seed(seed); numpy.random.seed(seed); torch.manual_seed(seed).  seed < 2^32. */
void hf_rng_seed(struct rng_streams *s, uint64_t seed);
/* Write rng_state_<rank>.pth (or rng_state.pth).  Takes out. */
int hf_rng_write(struct ckpt_out *out, const struct rng_streams *s, struct ckpt_err *err);

/* State of torch's LambdaLR; one entry per parameter group. */
struct scheduler_state {
    const double *base_lr;              /* [n_group] */
    const double *last_lr;              /* [n_group]: of the next step */
    size_t        n_group;
    int64_t       last_epoch;           /* optimizer steps done */
};

/* Write scheduler.pt.  Takes out. */
int hf_scheduler_write(struct ckpt_out *out, const struct scheduler_state *s,
                         struct ckpt_err *err);

struct adafactor_group;

/* Numbers of a group of torch's Muon beside learning rate and weight decay. */
struct muon_group {
    double      momentum, eps, a, b, c;
    bool        nesterov;
    int64_t     ns_steps;
    const char *adjust_lr_fn;
};

/* One group of torch's AdamW, or of its SGD or Muon, or of Adafactor. */
struct adamw_group {
    double lr, initial_lr, beta1, beta2, eps, weight_decay;
    bool   sgd;                         /* with these instead of betas and eps: */
    double momentum, dampening;
    bool   nesterov;
    const struct adafactor_group *adafactor;    /* or these (hf/adafactor.h) */
    const struct muon_group *muon;      /* or these: the first moment alone, momentum_buffer */
};

/* How moments are stored; codes as in bitsandbytes (bnb/codes.h). */
enum adamw_kind { ADAMW_F32, ADAMW_BF16, ADAMW_8BIT };

/* One parameter, in the order of optimizer.pt: group 0's first, then group 1's. */
struct adamw_param {
    struct ckpt_shape shape;
    int               group;
    const float      *exp_avg, *exp_avg_sq;     /* [numel]; NULL: read through a reader */
    enum adamw_kind   kind;                     /* of what a reader gives */
};

/* Arrays of a parameter that AdamW updates. */
enum adamw_array {
    ADAMW_MASTER, ADAMW_EXP_AVG, ADAMW_EXP_AVG_SQ, ADAMW_ABSMAX, ADAMW_ABSMAX_SQ, ADAMW_ARRAYS
};

/*
 * For arrays outside the host's memory: read gives elements [start, start + count) of an array of
 * parameter i, its index in the list that is written; at most ADAMW_PIECE at once. Moments have
 * their kind's type, everything else is f32; a scale of 8BIT covers 256 elements, and start is a
 * multiple of that.
 */
struct adamw_reader {
    int (*read)(void *ctx, size_t i, enum adamw_array of, int64_t start, int64_t count, void *to,
                struct ckpt_err *err);
    void *ctx;
};
#define ADAMW_PIECE ((int64_t)1 << 20)

/* Whether the rule of a group has that array. */
bool hf_adamw_keeps(const struct adamw_group *g, enum adamw_array of);

/* Write optimizer.pt: {'state': {i: {step, exp_avg, exp_avg_sq}}, 'param_groups'}; of groups that
 * are SGD's or Muon's: {i: {momentum_buffer}}, or no states without a momentum.  Takes out.
 * reader NULL: every parameter has its arrays.  No parameter is 8BIT (bnb/optim.h). */
int hf_optimizer_write(struct ckpt_out *out, const struct adamw_param *param, size_t n_param,
                         const struct adamw_group *group, size_t n_group, int64_t step,
                         const struct adamw_reader *reader, struct ckpt_err *err);

/*
 * param_groups of torch's AdamW or SGD as a value: hyper-parameters, then "params": the indices of
 * first[g] .. first[g] + count[g].
 */
struct value *hf_adamw_groups(struct ckpt_arena *a, const struct adamw_group *group,
                                 size_t n_group, const int64_t *first, const int64_t *count);

#endif
