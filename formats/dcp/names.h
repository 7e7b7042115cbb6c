/*
 * dcp/names - names of a distributed checkpoint's tensors outside of it.
 *
 * A state dict is saved with everything around it: {"model": ..., "optimizer": {"state": ...,
 * "param_groups": ...}, "step": ...}.  Here "model.emb.weight" becomes emb.weight, a weight, and
 * "optimizer.state.emb.weight.exp_avg" becomes emb.weight|exp_avg, optimizer state.
 *
 *   optimizer   what lies beside param_groups, or under "optimizer" or "optim":
 *               state/<parameter>/<key>, or flattened state.<parameter>.<key>; Megatron's
 *               optimizer.state.<key>.<parameter>
 *   weights     of what is left, what lies under "model", "state_dict" or "module", or under the
 *               one key that all have in common; _fsdp_wrapped_module., _orig_mod.,
 *               _checkpoint_wrapped_module. and a module. that all begin with are left out
 *   other       the rest, under its whole path
 *
 * Source: torch 2.15 distributed/checkpoint/state_dict.py and _nested_dict.py; accelerate's
 * merge_fsdp_weights; files of both.
 */
#ifndef CKPT_FORMATS_DCP_NAMES_H
#define CKPT_FORMATS_DCP_NAMES_H

#include "libckpt/tensor.h"

/* An item: its path, and its kind and name outside. */
struct dcp_item {
    const char *const *part;
    size_t             n_part;
    bool               tensor;      /* else a Python value, which only marks an optimizer */
    enum ckpt_kind     kind;        /* filled by dcp_names_fill */
    const char        *name;        /* likewise, in the arena */
};

/* Fill kind and name of all tensors. */
int dcp_names_fill(struct dcp_item *item, size_t n, struct ckpt_arena *arena,
                   struct ckpt_err *err);

/* True when some tensor of them is a weight: an optimizer saved by itself has none. */
bool dcp_names_weights(const struct dcp_item *item, size_t n);

/* path joined by dots from part `from` on, in the arena; NULL when it refuses. */
char *dcp_names_join(struct ckpt_arena *arena, const char *const *part, size_t n, size_t from);

/* The first n parts as a map's key of *len bytes: each ends in NUL, so that no dot can move from
 * one to the next.  NULL when memory is refused. */
char *dcp_names_key(struct ckpt_arena *arena, const char *const *part, size_t n, size_t *len);

/* True when part k of the path is "param_groups", or begins with "param_groups.". */
bool dcp_names_groups_at(const struct dcp_item *item, size_t k);

/* name without the parts that wrappers put into it, in the arena (or name itself). */
const char *dcp_names_unwrap(struct ckpt_arena *arena, const char *name);

#endif
