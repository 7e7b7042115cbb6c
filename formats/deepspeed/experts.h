/*
 * deepspeed/experts - the files of MoE layers: each expert has a file of its own, which gives it
 * the number it has in the complete model.
 *
 *   layer_L_expert_E_mp_rank_00_model_states.pt   weights of expert E of MoE layer L, by name
 *   expert_E_mp_rank_00_model_states.pt           old: of expert E of every layer
 *   expp_rank_P_mp_rank_00_optim_states.pt        without ZeRO: the optimizer of a rank with
 *                                                 number P of its expert-parallel group
 *
 * Of n ranks, S make up an expert-parallel group; each of them has 1/S of a layer's experts, and
 * numbers these from 0 everywhere else (param_shapes, param_slice_mappings).  Ranks P, P+S, P+2S,
 * ... have the same experts and partition their states among themselves; with
 * use_data_before_expert_parallelism it is the n/S ranks from P*n/S on.  Source: DeepSpeed 0.19.8
 * runtime/engine.py (_save_moe_checkpoint), utils/groups.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_EXPERTS_H
#define CKPT_FORMATS_DEEPSPEED_EXPERTS_H

#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"
#include "libckpt/tensor.h"

/* A tensor of an expert. */
struct ds_expert {
    const char                 *name;       /* its name in the complete model */
    size_t                      number;     /* that number */
    size_t                      of;         /* number of experts of its layer */
    const struct value_tensor  *t;
    const struct torch_archive *archive;
};

struct ds_experts {
    struct ckpt_arena      arena;
    struct torch_archive **file;            /* [n_file] */
    size_t                 n_file, max_file;
    struct ds_expert      *item;            /* [n] sorted by layer and expert */
    size_t                 n, cap;
    struct ckpt_map       *by_name, *layer; /* layer: prefix of its experts' names -> their
                                               number */
    struct torch_archive **optim;           /* [n_optim] in stage 0, by number in the group */
    size_t                 n_optim;
    bool                   data_first;      /* use_data_before_expert_parallelism */
};

/* Whether a file has one of the names above. */
bool ds_expert_file(const char *name);
/*
 * Open the files; f's model file is open.  Checked: exactly the experts that num_experts counts
 * are present, and each file holds its own expert.
 */
int ds_experts_open(struct ds_files *f, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                    size_t n, struct ckpt_err *err);
void ds_experts_close(struct ds_experts *x);
/* Without ZeRO, the optimizer of number p of an expert-parallel group; NULL when there is none. */
const struct value *ds_expert_optim(const struct ds_experts *x, size_t p);

/* Rank k of those that share the experts of number p, in groups of `size` ranks. */
size_t ds_expert_rank(const struct ds_files *f, size_t size, size_t p, size_t k);
/*
 * The number that rank 0's flat group g has on another rank.  DeepSpeed makes the groups of
 * experts from a set of names, whose order differs from process to process.  SIZE_MAX when the
 * rank has no such group.
 */
size_t ds_expert_group(const struct ds_files *f, size_t rank, size_t g);
/*
 * The expert tensor that number p of a group of `size` ranks calls name; NULL without an error
 * when the name is not an expert's.
 */
int ds_expert_find(const struct ds_expert **out, const struct ds_experts *x, const char *name,
                   size_t size, size_t p, struct ckpt_err *err);
/* List the tensors that list lacks: all of them without ZeRO, else those of experts that are not
 * trained. */
int ds_expert_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);

#endif
