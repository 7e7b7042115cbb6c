/*
 * write/flat_out - write a rank's files of a run of stage 1 or 2, that DeepSpeed loads.
 *
 * There the trained parameters of a group lie one after another, and a rank has an equal part of
 * the whole, wherever that cuts (layout.h).  The model is whole in a file of its own, which one
 * rank of a folder writes.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_FLAT_OUT_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_FLAT_OUT_H

#include "formats/deepspeed/write/out.h"

struct ds_flat_out;

/* A group of the optimizer that has parameters. */
struct ds_flat_group {
    const size_t *param;        /* [n] indices of the state's parameters, in their flat order */
    size_t        n;
    int64_t       numel;        /* elements of all */
    int64_t       part;         /* elements of each rank's part, padding included */
    int64_t       own;          /* this rank's without padding */
};

/*
 * Create <tag>/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt, and with module
 * <tag>/mp_rank_00_model_states.pt, in dir.  state is borrowed until the close, but its master,
 * exp_avg, exp_avg_sq and reader, which are not used.  CKPT_ESTATE as ds_write_rank.
 */
int ds_flat_out_begin(struct ds_flat_out **out, struct ckpt_outdir *dir, const char *tag,
                      const struct ds_rank_state *state, bool module, struct ckpt_err *err);
const struct ds_flat_group *ds_flat_out_groups(const struct ds_flat_out *f, size_t *n);
/* Elements [at, at + n) of this rank's part of a group's array, at + n <= own.  Padding is put by
 * begin. */
int ds_flat_out_put(struct ds_flat_out *f, size_t group, enum adamw_array of, int64_t at,
                    int64_t n, const float *src, struct ckpt_err *err);
/* Elements of a whole parameter for the model's file, rounded to its dtype. */
int ds_flat_out_put_weight(struct ds_flat_out *f, size_t param, int64_t start, int64_t n,
                           const float *src, struct ckpt_err *err);
/* Commit; every element must have been put. */
int ds_flat_out_commit(struct ds_flat_out *f, struct ckpt_err *err);
/* Abort what was not committed, and release; NULL accepted. */
void ds_flat_out_close(struct ds_flat_out *f);

#endif
