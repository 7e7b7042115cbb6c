/*
 * hf/optim_file - what every optimizer.pt has in common: {'state': {i: ...}, 'param_groups'}, and
 * the storages of its states.
 */
#ifndef CKPT_FORMATS_HF_OPTIM_FILE_H
#define CKPT_FORMATS_HF_OPTIM_FILE_H

#include "formats/hf/trainer_files.h"
#include "formats/torch/out.h"

struct hf_optim_file {
    const struct adamw_group *group;    /* [n_group] */
    size_t      n_group, n_param;
    size_t      storages;               /* of a parameter: those of i begin at storages i */
    const void *ctx;
    int (*group_of)(const void *ctx, size_t i);
    /* Add the entry of parameter i, if it has one, and say what its storages are; nonzero: no
     * memory. */
    int (*add)(const void *ctx, struct ckpt_arena *a, struct value *state, size_t i,
               struct torch_storage *storage);
    /* Put all that its storages have; piece [ADAMW_PIECE] is room to read in. */
    int (*put)(const void *ctx, struct torch_writer *w, size_t i, float *piece,
               struct ckpt_err *err);
};

/* Write it; takes out.  Groups have neighbouring parameters.  CKPT_ENOMEM also for one that is of
 * no group. */
int hf_optim_file_write(struct ckpt_out *out, const struct hf_optim_file *f, struct ckpt_err *err);

/* Where an array of parameter i comes from. */
struct hf_optim_from {
    const float *whole;                 /* all of it; NULL: read */
    const struct adamw_reader *reader;
    size_t i;
    enum adamw_array of;
};
/* Put the n elements of a storage, read through piece. */
int hf_optim_file_put(struct torch_writer *w, size_t storage, int64_t n,
                      const struct hf_optim_from *from, float *piece, struct ckpt_err *err);

#endif
