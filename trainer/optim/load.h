/*
 * optim/load - load moments from an optimizer.pt, however they are stored there and here.
 *
 * Moments stored alike are copied: bf16 numbers, and 8-bit codes with their scales, so that a
 * run continues with the same bits.  Others are converted through f32.
 */
#ifndef CKPT_TRAINER_OPTIM_LOAD_H
#define CKPT_TRAINER_OPTIM_LOAD_H

#include "trainer/run/session.h"

/* Both moments of all that is trained; prove: by the checksums that the archive has.  Not
 * collective. */
int optim_load(struct session *s, const char *file, bool prove, struct ckpt_err *err);
/* Tell the log when a checkpoint kept moments otherwise than they are kept here. */
void optim_tell_change(const struct session *s, const char *path, enum op_moments was);

#endif
