/* predictions - the figures of predictions in files, without a model. */
#ifndef CKPT_TOOLS_EVAL_PREDICTIONS_H
#define CKPT_TOOLS_EVAL_PREDICTIONS_H

#include "tools/cli.h"
#include "tools/eval/bertscore.h"
#include "tools/eval/gate.h"
#include "tools/opt/opt.h"

struct predictions_want {
    struct opt_list file;               /* records with a prediction and its references */
    const char     *base;               /* of another system over the same rows, or NULL */
    const struct opt_list *metric;      /* of score.h */
    const struct bertscore_want *encoder;
    const struct gate_want *gate;
    int64_t         seed;
};

/*
 * Print the figures.  A record's prediction is its field prediction, predict, prediction_text or
 * generated_text; its references are those of references, reference, answers (with text, as SQuAD
 * has it), label or target: a text, a list of texts, or a number.  CKPT_EFORMAT for a record that
 * has not both, or for a base with other references; CKPT_ENO, after printing, for a figure beyond
 * its bound.
 */
int predictions_print(const struct predictions_want *w, const struct cli *cli,
                      struct ckpt_err *err);

#endif
