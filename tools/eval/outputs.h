/*
 * eval/outputs - whether all files that an evaluation writes can be written, known before the work.
 */
#ifndef CKPT_TOOLS_EVAL_OUTPUTS_H
#define CKPT_TOOLS_EVAL_OUTPUTS_H

#include "tools/eval/eval.h"

/*
 * CKPT_EUSAGE where two of them, or one and the data, are one file, and where a name is -, which
 * only the predictions may be; CKPT_ECREATE as rows_out_check.
 */
int outputs_check(const struct eval_want *w, struct ckpt_err *err);

#endif
