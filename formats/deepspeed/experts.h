/*
 * deepspeed/experts - the files of MoE layers: experts have files of their own, and in them the
 * numbers that they have in the complete model.
 *
 *   layer_L_expert_E_mp_rank_00_model_states.pt   weights of expert E of MoE layer L, by name
 *   expert_E_mp_rank_00_model_states.pt           old: of expert E of every layer
 *   expp_rank_P_mp_rank_00_optim_states.pt        without ZeRO: the optimizer of a rank that is
 *                                                 number P of its expert-parallel group
 *
 * Of n ranks, S make up an expert-parallel group; each of them has 1/S of a layer's experts, and
 * numbers those from 0 wherever else it speaks of them (param_shapes, param_slice_mappings).
 * Ranks P, P+S, P+2S, ... have the same experts and cut their states among themselves; with
 * use_data_before_expert_parallelism the n/S ranks from P*n/S do.
 * Source: DeepSpeed 0.19.8 runtime/engine.py (_save_moe_checkpoint), utils/groups.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_EXPERTS_H
#define CKPT_FORMATS_DEEPSPEED_EXPERTS_H

#include "formats/deepspeed/parts.h"
#include "libckpt/base/map.h"
#include "libckpt/tensor.h"

/* A tensor of an expert. */
struct ds_expert {
    const char                 *name;       /* with the expert's number in the complete model */
    size_t                      number;     /* that number */
    size_t                      of;         /* experts that its layer has */
    const struct value_tensor  *t;
    const struct torch_archive *archive;
};

struct ds_experts {
    struct ckpt_arena      arena;
    struct torch_archive **file;            /* [n_file] */
    size_t                 n_file, max_file;
    struct ds_expert      *item;            /* [n] in the order of layers and experts */
    size_t                 n, cap;
    struct ckpt_map       *by_name, *layer; /* layer: prefix of its experts' names -> how many */
    struct torch_archive **optim;           /* [n_optim] of stage 0, by number in the group */
    size_t                 n_optim;
    bool                   data_first;      /* use_data_before_expert_parallelism */
};

/* Whether a file's name is one of the above. */
bool ds_expert_file(const char *name);
/*
 * Open them.  f's model file is open.  Proved: every expert that num_experts counts is there
 * and no other, and each file holds its own expert.
 */
int ds_experts_open(struct ds_files *f, struct ckpt_dir *dir, const struct ckpt_entry *entry,
                    size_t n, struct ckpt_err *err);
void ds_experts_close(struct ds_experts *x);
/* The optimizer of number p of an expert-parallel group, without ZeRO; NULL. */
const struct value *ds_expert_optim(const struct ds_experts *x, size_t p);

/* Rank k of those that share the experts of number p, of groups of `size` ranks. */
size_t ds_expert_rank(const struct ds_files *f, size_t size, size_t p, size_t k);
/*
 * The number of rank 0's flat group g on another rank.  DeepSpeed makes the groups of experts out
 * of a set of names, whose order differs from process to process.  SIZE_MAX when it has none.
 */
size_t ds_expert_group(const struct ds_files *f, size_t rank, size_t g);
/*
 * The tensor that number p of a group of `size` ranks calls name; NULL without an error when that
 * is no expert's.
 */
int ds_expert_find(const struct ds_expert **out, const struct ds_experts *x, const char *name,
                   size_t size, size_t p, struct ckpt_err *err);
/* List those that list lacks: all without ZeRO, else experts that are not trained. */
int ds_expert_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);

#endif
