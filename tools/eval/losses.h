/*
 * eval/losses - the loss of each row of the data, and their sum.
 *
 * Windows of a long row (--stride): windows of max_seq_length tokens begin stride tokens apart,
 * each has the loss of its tokens that are in no earlier one, and the mean of a window weighs as
 * many tokens as it has labels, less one.  Source: "Perplexity of fixed-length models" in the
 * documentation of transformers 5.
 */
#ifndef CKPT_TOOLS_EVAL_LOSSES_H
#define CKPT_TOOLS_EVAL_LOSSES_H

#include "tools/eval/opened.h"
#include "tools/eval/score/score.h"

/* What a row adds to sums: statistics of the metric loss. */
struct row_loss {
    double nats, tokens;        /* the router's loss of its batch included */
    double own_nats, bytes;     /* of the same tokens with weight 1; bytes of text 0: unknown */
};

/* A zeroed struct is empty. */
struct losses {
    struct row_loss *row;       /* [n] */
    size_t           n;
    struct row_loss  sum;
    double           seconds;
};

/* CKPT_EFORMAT where no row has a supervised token, or a loss is not a number. */
int losses_run(struct losses *l, struct eval_opened *e, struct ckpt_err *err);
/* The same of windows. */
int losses_strided(struct losses *l, struct eval_opened *e, struct ckpt_err *err);
/* Its rows as a score; rows without a token are part of it. */
int losses_score(struct score **out, const struct losses *l, struct ckpt_err *err);

#endif
