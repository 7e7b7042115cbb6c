/*
 * deepspeed/mappings - param_slice_mappings: which parameters the elements of a rank's part of a
 * flat group belong to, as {name: fragment_address(numel, start)} per group, in the group's
 * order.
 *
 * They confirm a partition, and replace param_shapes where a run has none: BF16_Optimizer of a
 * pipeline without ZeRO.  The shapes then are those of the weights. Source: DeepSpeed 0.19.8
 * runtime/bf16_optimizer.py, zero/stage_1_and_2.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_MAPPINGS_H
#define CKPT_FORMATS_DEEPSPEED_MAPPINGS_H

#include "formats/deepspeed/parts.h"

/* numel and start of a fragment_address. */
bool ds_address(const struct value *v, int64_t *numel, int64_t *start);
/* If f has mappings but no param_shapes, make the shapes from the mappings of all ranks. */
int ds_shapes_of_mappings(struct ds_files *f, struct ckpt_err *err);

#endif
