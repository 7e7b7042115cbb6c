/*
 * checkpoint/kind - which optimizer's states a file has, by their names.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_KIND_H
#define CKPT_TRAINER_CHECKPOINT_KIND_H

#include "libckpt/source.h"
#include "trainer/optim/table.h"

/*
 * CKPT_EMISMATCH when an optimizer.pt (torch's, bitsandbytes' or transformers' names) has states of
 * another rule than the row's, or none where the rule cannot begin without.  States of the same
 * rule in other types pass: they are converted.
 */
int kind_check(const struct ckpt_source *src, const struct optim_row *row, bool wants_moments,
               struct ckpt_err *err);

#endif
