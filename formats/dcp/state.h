/*
 * dcp/state - the state dict that is written: which path each tensor and value has in it.
 *
 *   model.NAME                          weights and buffers
 *   optimizer.state.PARAM.exp_avg ...   tensors named PARAM|exp_avg, and a step for each PARAM
 *   optimizer.param_groups.N.KEY        of the facts, when they say which parameters are whose
 *   KEY                                 plain values of the facts ("step", "note")
 */
#ifndef CKPT_FORMATS_DCP_STATE_H
#define CKPT_FORMATS_DCP_STATE_H

#include <jansson.h>

#include "formats/dcp/index.h"
#include "libckpt/tensor.h"

/*
 * Fill x: first the values that info gives, then the tensors; item_of[i] is the item of tensor
 * i.  *step becomes the number that items without a tensor, "step" of a parameter, hold.
 */
int dcp_state_fill(struct dcp_index *x, size_t *item_of, const struct ckpt_tensors *tensors,
                   const json_t *info, float *step, struct ckpt_err *err);

#endif
