/*
 * dcp/out - writing a distributed checkpoint that torch.distributed.checkpoint loads.
 *
 *   {"model": {name: weight}, "optimizer": {"state": {name: {exp_avg, exp_avg_sq, step}},
 *   "param_groups": [{"params": [names], ...}]}, and the input's other values}
 *
 * as torch's get_state_dict gives it and FSDP, Trainer and accelerate save it; any world size
 * loads it, each rank reading what it needs.  __0_0.distcp, more when max_shard_bytes says so;
 * .metadata last.  Each tensor is one box.
 *
 * Optimizer: tensors "<parameter>|<key>".  A parameter without |step gets info's "optimizer_step"
 * or "step".  info's "param_groups" are written when their params, or info's "group_params", name
 * every parameter that has state, or when there is a single group, which then contains them all.
 * Beside the model: tensors of kind CKPT_OTHER under their own name; info's "values" that are
 * plain and at the top.  Source: torch 2.15
 * distributed/checkpoint/{filesystem,metadata,planner_helpers,state_dict}.py.
 */
#ifndef CKPT_FORMATS_DCP_OUT_H
#define CKPT_FORMATS_DCP_OUT_H

#include "libckpt/format.h"

/* The row's create. */
int dcp_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
               const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
