/*
 * step - one optimizer step: micro-batches forward and backward, reduce, clip, update.
 *
 * The loss is the mean over the supervised tokens of all micro-batches of all ranks (one sum
 * divided by one count, not a mean of means), as transformers 5.17's Trainer has it.
 */
#ifndef CKPT_TRAINER_RUN_STEP_H
#define CKPT_TRAINER_RUN_STEP_H

#include "trainer/data/loader.h"
#include "trainer/optim/optim.h"
#include "trainer/optim/scaler.h"
#include "trainer/run/session.h"

struct step_result {
    double  loss;               /* before the update */
    double  grad_norm;          /* before clipping, without the loss's scale */
    bool    skipped;            /* nothing was updated: the gradient was not finite (scaler.h) */
    double  seconds;            /* that it took */
    double  communication;      /* of them in collectives (comm_lap_end); NaN: unknown */
    int64_t n_targets;          /* supervised tokens, all ranks */
    int64_t n_tokens;           /* all tokens, all ranks */
    int64_t n_samples;          /* of all ranks */
    double  epoch;              /* epochs done after this step, with the fraction of micro-batches
                                   as HF Trainer has it */
    bool    epoch_ends;         /* it is an epoch's last */
};

struct step_opts {
    struct optim_opts optim;
    struct scaler *scaler;      /* of the loss; its skipped steps are none of the optimizer's */
    uint64_t    seed;           /* of what is dropped out */
    int64_t     max_skipped;    /* steps that are not finite and may be skipped, one after another,
                                   without a scaled loss */
    const char *dump_grads;     /* file for the gradients of step dump_step, or NULL */
    int64_t     dump_step;
    /* Collective, before the update; scale: the loss's.  NULL: none. */
    int       (*look)(void *look_at, double scale, struct ckpt_err *err);
    void       *look_at;
};

/*
 * Collective: takes the loader's next step.  number counts from 1.  A record that one rank cannot
 * read fails the step on all.  When loss or gradient norm is not finite the weights stay as before
 * the step: with a scaled loss, or while max_skipped allows it, the step is skipped; else, or when
 * the scale cannot fall any more, it is CKPT_ENO (reason "non-finite") on every rank.  Dumped
 * gradients are those of the mean loss before clipping, as safetensors under the published names.
 */
int step_run(struct step_result *out, const struct session *s, struct loader *loader,
             const struct step_opts *opts, double lr, int64_t number, struct ckpt_err *err);

#endif
