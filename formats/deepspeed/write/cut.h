/*
 * write/cut - check a list of tensors against the saved run that is rewritten for another stage:
 * determine the role of each tensor, and that none is missing.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_CUT_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_CUT_H

#include "formats/deepspeed/write/run.h"
#include "libckpt/source.h"

/* The role of a tensor in the run. */
enum ds_kind {
    DS_TRAINED,         /* the optimizer's own weight (master) of a parameter */
    DS_MOMENT,
    DS_FROZEN,          /* a weight that is not trained */
    DS_BUFFER,
    DS_ALIAS            /* tied to another: written with it */
};

struct ds_target {
    enum ds_kind kind;
    size_t       param, moment;         /* indices in the run */
    size_t       storage;               /* in the model file; stage 3: of FROZEN and BUFFER only,
                                           the same in every rank's file */
    enum ckpt_dtype model_dtype;       /* dtype of the model's computation: of TRAINED and FROZEN */
};

struct ds_cut {
    struct ds_run              run;
    const struct ckpt_tensors *list;    /* what is written */
    const struct ckpt_tensors *saved;   /* what the saved run lists */
    struct ds_target          *target;  /* [list->n] */
    bool                       bf16_names;      /* bf16 is enabled: the optim files' prefix */
};

/*
 * Plan the partition of origin for stage and world (0: as saved) and check tensors against it.
 * CKPT_EMISMATCH names a tensor that is superfluous, missing or different; CKPT_EUNSUPPORTED when
 * origin is not a DeepSpeed source.  Release it, after a failure too.
 */
int ds_cut_plan(struct ds_cut *cut, const struct ckpt_tensors *tensors,
                const struct ckpt_source *origin, int stage, int world, struct ckpt_err *err);
void ds_cut_release(struct ds_cut *cut);
/* The folder's name: the saved one, or made from the step when that folder was opened itself. */
void ds_cut_tag(char tag[DS_MAX_TAG], const struct ds_cut *cut);

#endif
