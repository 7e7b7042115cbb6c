/*
 * universal - the tensors of a universal checkpoint: one small torch file for each parameter and
 * state, independent of stage and ranks.
 *
 *   <tag>/zero/<parameter>/fp32.pt, exp_avg.pt, ..., step.pt
 *   <tag>/zero/optimizer_state.pt        the optimizer's other values
 *   <tag>/[zero_pp_rank_R_]mp_rank_00_model_states.pt
 *
 * A state's file is {"param": tensor, "cat_dim": 0} or, converted from stage 3, a flat tensor,
 * whose shape is in param_shapes of the model file.  If the checkpoint was converted from a
 * tensor-parallel run or a pipeline, with several mp_rank files, the states are still complete,
 * each with its shape, but the model files hold slices or stages: then the folders of zero/ name
 * the parameters, and the rest of the model is left out, with a warning.  Source: DeepSpeed
 * 0.19.8 and 0.14.5 checkpoint/ds_to_universal.py, universal_checkpoint.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_UNIVERSAL_H
#define CKPT_FORMATS_DEEPSPEED_UNIVERSAL_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

struct ds_universal {
    struct ckpt_arena      arena;
    struct ckpt_dir       *dir;         /* zero/ */
    struct torch_archive **open;        /* [n] open files of states, those requested */
    size_t                 n, cap;
    const char           **state;       /* [n_state] states of a parameter: exp_avg, ... */
    size_t                 n_state;
    const char           **param;       /* [n_param] folders, if there are several mp_ranks */
    size_t                 n_param;
    bool                   sliced;      /* there are */
    struct torch_archive  *step_file;   /* of the first parameter, or NULL */
    const struct value    *step;        /* a number, or a tensor of step_file; NULL */
};

/* Warn that the model file's other tensors, which may be slices, are left out. */
void universal_tell_rest(const struct ckpt_tensors *list, const struct ds_files *f);
/*
 * Open zero/ of a tag's folder, its optimizer_state.pt as rank 0's optim file, and the step. f's
 * model files are open; sliced: there are several mp_ranks.
 */
int universal_open(struct ds_files *f, struct ckpt_dir *dir, bool sliced, struct ckpt_err *err);
void universal_close(struct ds_universal *u);
/* List trained parameters; state NULL for weights; as ds_flat_list. */
int universal_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                   struct ckpt_err *err);
/* Dtype of the first parameter's state, NULL for weights. */
int universal_dtype(enum ckpt_dtype *dtype, const struct ds_files *f, const char *state,
                    struct ckpt_err *err);

#endif
