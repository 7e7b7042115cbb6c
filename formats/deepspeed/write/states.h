/*
 * write/states - the values of each rank's model_states.pt and optim_states.pt for a saved run
 * that is rewritten for another stage, and the storage of each tensor.
 *
 * Everything in the saved files except tensors is copied unchanged: client state, scheduler, loss
 * scaler, configuration (except for the stage).  Layout as DeepSpeed 0.19.8 writes it.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_STATES_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_STATES_H

#include "formats/deepspeed/write/cut.h"
#include "formats/deepspeed/file.h"

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
/*
 * Add to d, a dictionary of file's, the loss scaling that every class but BF16_Optimizer stores;
 * for a run without ZeRO it is taken from the numbers beside its optimizer.
 */
int ds_put_scaling(struct value *d, struct ds_file *file, const struct ds_cut *cut,
                   struct ckpt_err *err);
/* Elements of rank's storage of flat tensor k: BF16_Optimizer includes the padding of weights. */
int64_t ds_optim_numel(const struct ds_cut *cut, size_t k, size_t which, int rank);

#endif
