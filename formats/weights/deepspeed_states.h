/*
 * deepspeed_states - the values of the files of a run that is cut anew: what each rank's
 * model_states.pt and optim_states.pt hold, and which storage takes which tensor.
 *
 * What the saved files have beside tensors goes along as it is: client state, scheduler, loss
 * scaler, configuration (but for the stage).  Layout as DeepSpeed 0.19.8 writes it.
 */
#ifndef CKPT_DEEPSPEED_STATES_H
#define CKPT_DEEPSPEED_STATES_H

#include "formats/weights/deepspeed_file.h"
#include "formats/weights/deepspeed_run.h"
#include "libckpt/source.h"

/* What a tensor that is written is in the run. */
enum ds_kind {
    DS_TRAINED,         /* the optimizer's own weight of a parameter */
    DS_MOMENT,
    DS_FROZEN,          /* a weight that is not trained */
    DS_BUFFER,
    DS_ALIAS            /* tied to another: written with it */
};

struct ds_target {
    enum ds_kind kind;
    size_t       param, moment;         /* numbers in the run */
    size_t       storage;               /* in the model file; stage 3: of FROZEN and BUFFER alone,
                                           the same in every rank's file */
    enum ckpt_dtype model_dtype;        /* that the model computes in: of TRAINED and FROZEN */
};

struct ds_cut {
    struct ds_run              run;
    const struct ckpt_tensors *list;    /* what is written */
    const struct ckpt_tensors *saved;   /* what the saved run lists */
    struct ds_target          *target;  /* [list->n] */
};

/* Storages of an optim file: the weights of flat tensor k, then its moments. */
static inline size_t ds_optim_storage(const struct ds_run *run, size_t k, size_t which)
{
    return k * (1 + run->n_moment) + which;
}

/* Fill file and give its root.  The first call for a model file sets target[].storage. */
int ds_model_states(struct value **root, struct ds_file *file, struct ds_cut *cut, int rank,
                    struct ckpt_err *err);
int ds_optim_states(struct value **root, struct ds_file *file, const struct ds_cut *cut, int rank,
                    struct ckpt_err *err);
/* Elements of rank's storage of flat tensor k: BF16_Optimizer keeps the padding of weights. */
int64_t ds_optim_numel(const struct ds_cut *cut, size_t k, size_t which, int rank);

#endif
