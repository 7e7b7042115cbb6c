/*
 * rope - rotary positions: what config.json says of them, and the table of angles.
 *
 * Source: transformers 5.17, modeling_rope_utils.py; model-families.md part 2.5.
 */
#ifndef CKPT_TRAINER_MODEL_ROPE_H
#define CKPT_TRAINER_MODEL_ROPE_H

#include "trainer/model/arch.h"

/*
 * Fill arch->rope from rope_parameters (v5), or rope_theta, rope_scaling and
 * partial_rotary_factor (v4); sizes are known.  partial: that last key counts.  longrope: "su"
 * and "yarn" mean it too, as in Phi-3's files.
 */
int rope_read(struct arch *arch, const json_t *config, bool partial, bool longrope,
              struct ckpt_err *err);

/*
 * Angles depend on how long the longest sequence is (dynamic, longrope)?  Then the table holds
 * for lengths of one regime: the same number for the same table.
 */
int64_t rope_regime(const struct arch *arch, int64_t length);
/* inv[R / 2] frequencies for sequences of length positions at most. */
void rope_frequencies(double *inv, const struct arch *arch, int64_t length);
/* table[positions][2][R / 2]: cosines, then sines, times the attention factor. */
void rope_table(float *table, int64_t positions, const struct arch *arch, int64_t length);

#endif
