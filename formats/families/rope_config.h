/*
 * rope_config - read rotary positions from config.json.
 *
 * Source: transformers 5.17, modeling_rope_utils.py.
 */
#ifndef CKPT_FORMATS_FAMILIES_ROPE_CONFIG_H
#define CKPT_FORMATS_FAMILIES_ROPE_CONFIG_H

#include "formats/families/arch.h"

/*
 * Fill arch->rope from rope_parameters (v5), or rope_theta, rope_scaling and, for a family with
 * longrope, partial_rotary_factor (v4).  Sizes are known; a theta that is there is the family's.
 */
int rope_config_read(struct arch *arch, const json_t *config, struct ckpt_err *err);

#endif
