/*
 * eval/bertscore - predictions against references by the hidden states of an encoder.
 *
 * Each token is matched with the most similar token of the other text, by the cosine of their
 * hidden states after some blocks; the mean over the prediction's tokens is the precision, over the
 * reference's the recall.  The tokens that the tokenizer puts around a text can be matched with,
 * and do not count.  An empty text has 0.  Of several references each figure takes the best.
 *
 * Source: bert_score 0.3.13 (Zhang et al. 2020), utils.py and score.py.
 */
#ifndef CKPT_TOOLS_EVAL_BERTSCORE_H
#define CKPT_TOOLS_EVAL_BERTSCORE_H

#include "tools/eval/score/score.h"

struct bertscore_want {
    const char *model;          /* directory of an encoder, or NULL */
    int64_t     layer;          /* blocks; 0: as bert_score has it for the model's name */
    bool        idf;            /* rare tokens of the references weigh more */
    const char *baseline;       /* file LAYER,P,R,F of values that become 0, or NULL */
    const char *device;         /* as in struct device_opts */
    int64_t     threads;
};

/* Statistics of the metric bertscore.  CKPT_EUSAGE where there is no model or layer. */
int bertscore_new(struct score **out, const struct bertscore_want *w, const struct score_row *row,
                  size_t n, struct ckpt_err *err);

#endif
