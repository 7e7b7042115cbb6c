/*
 * eval/files - what of an evaluation's files and streams cannot work, known before the work.
 */
#ifndef CKPT_TOOLS_EVAL_FILES_H
#define CKPT_TOOLS_EVAL_FILES_H

#include "tools/eval/eval.h"

/*
 * What it writes: CKPT_EUSAGE where two files, or one and the data, are one, and where a name is -,
 * which only the predictions may be; CKPT_ECREATE as rows_out_check.
 */
int files_check(const struct eval_want *w, struct ckpt_err *err);
/* Standard input can be one thing only: CKPT_EUSAGE names the options that both take it; rest are
 * the models, which without any are named there. */
int files_check_stdin(const struct eval_want *w, char *const *rest, int n_rest,
                      struct ckpt_err *err);

#endif
