/*
 * dcp/names - map the paths of a distributed checkpoint's tensors to their usual names.
 *
 * A state dict is saved with everything around it: {"model": ..., "optimizer": {"state": ...,
 * "param_groups": ...}, "step": ...}.  "model.emb.weight" becomes emb.weight, a weight, and
 * "optimizer.state.emb.weight.exp_avg" becomes emb.weight|exp_avg, optimizer state.
 *
 *   optimizer   items beside param_groups, or under "optimizer" or "optim":
 *               state/<parameter>/<key>, or flattened state.<parameter>.<key>; Megatron's
 *               optimizer.state.<key>.<parameter>
 *   weights     of the other items, those under "model", "state_dict" or "module", or under the
 *               one key that all have in common; _fsdp_wrapped_module., _orig_mod.,
 *               _checkpoint_wrapped_module. and a module. that all begin with are left out
 *   other       the rest, under its full path
 *
 * Source: torch 2.15 distributed/checkpoint/state_dict.py and _nested_dict.py; accelerate's
 * merge_fsdp_weights; files of both.
 */
#ifndef CKPT_FORMATS_DCP_NAMES_H
#define CKPT_FORMATS_DCP_NAMES_H

#include "libckpt/tensor.h"

/* An item: its path, and its kind and usual name. */
struct dcp_item {
    const char *const *part;
    size_t             n_part;
    bool               tensor;      /* else a Python value, which only shows that there is an
                                       optimizer */
    enum ckpt_kind     kind;        /* filled by dcp_names_fill */
    const char        *name;        /* likewise, in the arena */
};

/* Set kind and name of all tensors. */
int dcp_names_fill(struct dcp_item *item, size_t n, struct ckpt_arena *arena,
                   struct ckpt_err *err);

/* Whether any of them is a weight: a separately saved optimizer has none. */
bool dcp_names_weights(const struct dcp_item *item, size_t n);

/* Join the parts of path from `from` on by dots, in the arena; NULL when it refuses. */
char *dcp_names_join(struct ckpt_arena *arena, const char *const *part, size_t n, size_t from);

/* The first n parts as a map key of *len bytes: each part ends in NUL, so that a dot within a
 * part cannot be confused with a separator.  NULL when out of memory. */
char *dcp_names_key(struct ckpt_arena *arena, const char *const *part, size_t n, size_t *len);

/* True when part k of the path is "param_groups", or begins with "param_groups.". */
bool dcp_names_groups_at(const struct dcp_item *item, size_t k);

/* name without the parts inserted by wrappers, in the arena (or name itself). */
const char *dcp_names_unwrap(struct ckpt_arena *arena, const char *name);

#endif
