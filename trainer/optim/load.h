/*
 * optim/load - moments out of an optimizer.pt, whichever way they are stored there and here.
 *
 * What is stored alike is taken as it is: bf16 numbers, and codes of 8 bits with their scales, so
 * that a run goes on with the same bits.  Else moments pass through f32: codes are opened, or
 * made anew.
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
