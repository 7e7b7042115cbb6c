/*
 * optim/load - load moments from an optimizer.pt, whatever their type there and here.
 *
 * Moments of the same type are copied: bf16 numbers, and 8-bit codes with their scales, so that a
 * run continues with the same bits.  Others are converted through f32.
 */
#ifndef CKPT_TRAINER_OPTIM_LOAD_H
#define CKPT_TRAINER_OPTIM_LOAD_H

#include "trainer/optim/table.h"
#include "trainer/run/session.h"

/*
 * Load the moments of all trained parameters; prove: verify the archive's checksums.  *steps: the
 * updates that it says were done; -1: it does not say.  Not collective.
 */
int optim_load(struct session *s, const char *file, const struct optim_row *row, bool prove,
               int64_t *steps, struct ckpt_err *err);
/* That count alone, of the first parameter's state: a number, or a tensor of one. */
int optim_steps(int64_t *steps, const char *file, struct ckpt_err *err);
/* Log when a checkpoint stores moments in another type than this run. */
void optim_tell_change(const struct session *s, const char *path, enum op_moments was);

#endif
