/*
 * rope - rotary positions: the table of angles.
 *
 * Source: transformers 5.17, modeling_rope_utils.py; model-families.md part 2.5.
 */
#ifndef CKPT_TRAINER_MODEL_ROPE_H
#define CKPT_TRAINER_MODEL_ROPE_H

#include "formats/families/arch.h"

/*
 * Whether angles depend on the length of the longest sequence (dynamic, longrope): lengths with
 * the same number share one table.
 */
int64_t rope_regime(const struct arch *arch, int64_t length);
/*
 * Rows of a batch, up to `wanted`, where none is longer than `longest`: 1 where lengths have
 * regimes, since the angles of all rows follow from the longest one and a row's figures must not
 * depend on its neighbours.
 */
int64_t rope_batch(const struct arch *arch, int64_t wanted, int64_t longest);
/* inv[R / 2] frequencies for sequences of length positions at most. */
void rope_frequencies(double *inv, const struct arch *arch, int64_t length);
/* table[positions][2][R / 2]: cosines, then sines, times the attention factor. */
void rope_table(float *table, int64_t positions, const struct arch *arch, int64_t length);

#endif
