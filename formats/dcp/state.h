/*
 * dcp/state - the state dict to be written: the path of each tensor and value in it.
 *
 *   model.NAME                          weights and buffers
 *   optimizer.state.PARAM.exp_avg ...   tensors named PARAM|exp_avg, and a step for each PARAM
 *   optimizer.param_groups.N.KEY        of the facts, when they assign the parameters to groups
 *   KEY                                 plain values of the facts ("step", "note")
 */
#ifndef CKPT_FORMATS_DCP_STATE_H
#define CKPT_FORMATS_DCP_STATE_H

#include <jansson.h>

#include "formats/dcp/index.h"
#include "libckpt/tensor.h"

/*
 * Fill x: first the values in info, then the tensors; item_of[i] is the item of tensor i.  *step
 * gets the number for items without a tensor, a parameter's "step".
 */
int dcp_state_fill(struct dcp_index *x, size_t *item_of, const struct ckpt_tensors *tensors,
                   const json_t *info, float *step, struct ckpt_err *err);

#endif
