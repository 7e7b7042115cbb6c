/*
 * eval/tables - the results of one model as tables, side by side with the base's.
 */
#ifndef CKPT_TOOLS_EVAL_TABLES_H
#define CKPT_TOOLS_EVAL_TABLES_H

#include "tools/eval/eval.h"
#include "tools/eval/figures.h"

/*
 * Print losses, figures, differences and continuations, each if there are any; with --json one
 * document.  They go to standard output, and to stderr where that is for the lines of
 * --predictions-out or the paths of --pass-through.
 *
 *   base     NULL, or results over the same rows and prompts
 *   figures  of the scores of model, beside those of base
 *
 * CKPT_EIO if standard output takes no more.
 */
int tables_print(const struct eval_want *w, const struct cli *cli,
                 const struct eval_result *model, const struct eval_result *base,
                 const struct figures *figures, struct ckpt_err *err);

#endif
