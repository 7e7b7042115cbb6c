/*
 * eval/page - generations side by side as one self-contained page for a browser.
 */
#ifndef CKPT_TOOLS_EVAL_PAGE_H
#define CKPT_TOOLS_EVAL_PAGE_H

#include "tools/eval/eval.h"

/*
 * Write the page of a model's results, beside those of base (or NULL) on the same rows, to path,
 * complete or not at all.  CKPT_ECREATE for an existing file without overwrite.
 */
int eval_page_write(const char *path, bool overwrite, const struct eval_result *model,
                    const struct eval_result *base, struct ckpt_err *err);

#endif
