/*
 * baseline - the file of a BERTScore baseline: figures that become 0 when scores are rescaled.
 *
 *    LAYER,P,R,F
 *    0,0.31,0.31,0.30
 *    ...
 *
 * A line a layer; lines that are none, such as the first, are skipped.  Source: bert_score 0.3.13,
 * rescale_baseline/ and score.py, which takes lines by their order where this room takes LAYER; its
 * own files have every layer from 0 on.
 */
#ifndef CKPT_TOOLS_EVAL_SCORE_BASELINE_H
#define CKPT_TOOLS_EVAL_SCORE_BASELINE_H

#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

/* P, R and F of a layer from text[n], which a NUL follows.  CKPT_EFORMAT where there is no such
 * line, or a figure is not in (-1, 1). */
int baseline_read(double figure[3], const char *text, size_t n, int64_t layer,
                  struct ckpt_err *err);

#endif
