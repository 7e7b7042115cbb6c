/*
 * deepspeed/facts - what the files of a tag tell besides tensors, as JSON.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_FACTS_H
#define CKPT_FORMATS_DEEPSPEED_FACTS_H

#include <jansson.h>

#include "formats/deepspeed/parts.h"

/*
 * format, tag, zero_stage, world_size, ds_version, global_steps, global_samples, skipped_steps,
 * num_experts (one an MoE layer), optimizer_step, lr (one a group), loss_scale,
 * dynamic_loss_scale, loss_scaler, lr_scheduler, param_groups, frozen (names), client_state (what
 * the caller of save_checkpoint added), ds_config.
 * A new reference, NULL when memory is refused; what a version does not keep is left out.
 */
json_t *ds_facts(const struct ds_files *f);

#endif
