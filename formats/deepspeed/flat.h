/*
 * deepspeed/flat - assemble parameters from pieces in the ranks' flat tensors: every piece is one
 * fragment in a storage of a rank's file.
 *
 * Stage 3: tensor j of fp32_flat_groups belongs to dictionary j of param_shapes (sub-groups);
 * stages 1, 2 and BF16_Optimizer: entry g of single_partition_of_fp32_groups is the rank's part
 * of flat group g, without its padding (BF16_Optimizer and the moments: with padding).  The
 * arithmetic is deepspeed/layout.h's; the files' own facts (group_paddings, param_slice_mappings)
 * must agree with it.  Padding is in no fragment, so it is never read.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_FLAT_H
#define CKPT_FORMATS_DEEPSPEED_FLAT_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/*
 * List all trained parameters: state NULL for the master weights under their names (kind WEIGHT),
 * or the moment "exp_avg" as "<name>|exp_avg" (kind OPTIM).  Nothing is listed for a moment that
 * no rank has (an optimizer of another kind).
 */
int ds_flat_list(struct ckpt_tensors *list, const struct ds_files *f, const char *state,
                 struct ckpt_err *err);
/* List frozen parameters of stage 3, whose pieces are in the model files in the model's dtype. */
int ds_frozen_list(struct ckpt_tensors *list, const struct ds_files *f, struct ckpt_err *err);

#endif
