/*
 * eval/texts - how a model continues the prompts of the command line and of the data.
 *
 * Abbreviations: eval.
 */
#ifndef CKPT_TOOLS_EVAL_TEXTS_H
#define CKPT_TOOLS_EVAL_TEXTS_H

#include "tools/eval/eval.h"
#include "tools/eval/opened.h"

/* Fills the prompts, references and continuations of r.  CKPT_EUSAGE where the model has no
 * tokenizer, or an option is without effect. */
int eval_texts(struct eval_result *r, struct eval_opened *e, struct ckpt_err *err);

#endif
