/*
 * dcp/state - the places of tensors and facts in the state dict that is written.
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
