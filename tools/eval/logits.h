/*
 * logits - write logits and losses of every row to a file, for checks against other programs.
 */
#ifndef CKPT_TOOLS_EVAL_LOGITS_H
#define CKPT_TOOLS_EVAL_LOGITS_H

#include "trainer/data/stream.h"
#include "trainer/run/session.h"

/*
 * Write path (safetensors, F32): logits [rows, longest, V], zeros where a row has no token;
 * row_loss [rows], mean over the row's supervised tokens plus the router's loss of the row alone,
 * NaN where it has none; loss [], as an evaluation of all rows computes it, with the router's
 * loss of a batch.  A file that exists is replaced only with overwrite (else CKPT_ECREATE).
 */
int logits_write(const char *path, bool overwrite, struct session *s,
                 const struct data_source *data, double loss, struct ckpt_err *err);

#endif
