/*
 * rope_config - rotary positions as config.json has them.
 *
 * Source: transformers 5.17, modeling_rope_utils.py.
 */
#ifndef CKPT_FORMATS_FAMILIES_ROPE_CONFIG_H
#define CKPT_FORMATS_FAMILIES_ROPE_CONFIG_H

#include "formats/families/arch.h"

/*
 * Fill arch->rope from rope_parameters (v5), or rope_theta, rope_scaling and
 * partial_rotary_factor (v4); sizes are known.  partial: that last key counts.  longrope: "su"
 * and "yarn" mean it too, as in Phi-3's files.
 */
int rope_config_read(struct arch *arch, const json_t *config, bool partial, bool longrope,
              struct ckpt_err *err);

#endif
