/*
 * evaluate - mean loss over a data set: every sample once, whatever the number of ranks.
 */
#ifndef CKPT_TRAINER_RUN_EVALUATE_H
#define CKPT_TRAINER_RUN_EVALUATE_H

#include "trainer/comm/comm.h"
#include "trainer/data/loader.h"
#include "trainer/model/model.h"

struct evaluate_result {
    double  loss;               /* mean over supervised tokens; perplexity is exp(loss) */
    int64_t n_targets;
    int64_t n_samples;
    int64_t n_batches;          /* of a rank */
    double  seconds;
    bool    stopped;            /* by *stop: there is nothing else */
};

/* Collective.  Reads one epoch of the loader (opened with SHUFFLE_MASK, no shuffling), until *stop
 * of a rank is not 0; stop: NULL on every rank or on none. */
int evaluate_run(struct evaluate_result *out, struct model *model,
                 const struct model_weights *weights, struct comm *comm, struct loader *loader,
                 const volatile int *stop, struct ckpt_err *err);

#endif
