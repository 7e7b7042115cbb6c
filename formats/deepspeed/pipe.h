/*
 * deepspeed/pipe - the layer files of a pipeline, whose model files hold no weights.
 *
 *   layer_LL-model_states.pt             weights and buffers of layer LL, under its own names
 *   layer_LL-model_MM-model_states.pt    with tensor parallelism, which is not read
 *   mp_rank_SS_model_states.pt           of pipeline stage SS: counters, param_shapes
 *
 * In the complete model a tensor is called "<layer>.<its name>", as in PipelineModule, and that
 * of a TiedLayerSpec "tied_modules.<key>.<its name>".  The file of a tied layer repeats its
 * tensors, and every stage that uses them lists them among its own parameters.  Layers without
 * weights have no file.  Source: DeepSpeed 0.19.8 runtime/pipe/module.py (save_state_dict,
 * _build).
 */
#ifndef CKPT_FORMATS_DEEPSPEED_PIPE_H
#define CKPT_FORMATS_DEEPSPEED_PIPE_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/* A tensor of a layer. */
struct ds_layer_tensor {
    const char                 *name;       /* in the complete model */
    const struct value_tensor  *t;
    const struct torch_archive *archive;
};

struct ds_layers {
    struct ckpt_arena       arena;
    struct torch_archive  **file;           /* [n_file] */
    size_t                 *number;         /* [n_file] of the layer */
    size_t                  n_file;
    struct ds_layer_tensor *item;           /* [n] */
    size_t                  n, cap;
};

/* Whether a name is a layer's file, and of which layer; *tensor_parallel when the file is a
 * slice of one. */
bool ds_layer_file(size_t *layer, bool *tensor_parallel, const char *name);
/* Whether "tied_modules.<key>.<rest>" can be a layer's "<layer>.<rest>". */
bool ds_layer_may_be_tied(const char *tied, const char *name);
/* Whether a stage lists a tensor as a buffer. */
bool ds_layer_buffer(const struct ds_files *f, const char *name);
/* Open those in a folder, sorted by layer. */
int ds_layers_open(struct ds_layers **out, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                   size_t n, struct ckpt_err *err);
void ds_layers_close(struct ds_layers *l);
/*
 * List the tensors that list lacks; f[n] are the stages.  A tensor that equals a listed one of
 * tied_modules after rounding becomes its alias.  Checked: every listed layer has its file.
 */
int ds_layers_list(struct ckpt_tensors *list, const struct ds_files *f, size_t n,
                   struct ckpt_err *err);

#endif
