/*
 * deepspeed/facts - the facts in the files of a tag other than tensors, as JSON.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_FACTS_H
#define CKPT_FORMATS_DEEPSPEED_FACTS_H

#include <jansson.h>

#include "formats/deepspeed/parts.h"

/*
 * format, tag, zero_stage, world_size, ds_version, global_steps, global_samples, skipped_steps,
 * num_experts (one per MoE layer), optimizer_step, lr (one per group), loss_scale,
 * dynamic_loss_scale, loss_scaler, lr_scheduler, param_groups, frozen (names), client_state (the
 * additions of save_checkpoint's caller), ds_config.  A new reference, NULL when out of memory;
 * facts that a version does not store are left out.
 */
json_t *ds_facts(const struct ds_files *f);

#endif
