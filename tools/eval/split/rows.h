/*
 * split/rows - generated rows on their way from the ranks that made them to the first one.
 *
 * Each rank but the first is connected to it by a socket of the local domain, with an abstract name
 * that the system chooses and that only processes of this user are let in by.  A row is a struct
 * head followed by its texts; the end of a connection is the end of that rank's rows.
 */
#ifndef CKPT_TOOLS_EVAL_SPLIT_ROWS_H
#define CKPT_TOOLS_EVAL_SPLIT_ROWS_H

#include "tools/eval/split/split.h"

struct split_row {
    size_t      index;
    int64_t     n_tokens;
    bool        stopped;                /* by an eos or a text; else by its length */
    const char *text;
    const char *logprobs;               /* JSON, or NULL */
};

struct split_rows;

/* Connect the ranks of s, which is not NULL.  Collective; fails on all or on none.  Closed by
 * split_rows_close either way. */
int split_rows_open(struct split_rows **out, struct split *s, struct ckpt_err *err);
/* Of all ranks but the first: send a row.  CKPT_ECOMM where the first one has given up. */
int split_rows_put(struct split_rows *r, const struct split_row *row, struct ckpt_err *err);
/* Of the first: give `take` the rows that have arrived, or with `all` wait until every other rank
 * has closed its end.  What a row points to lasts until take returns. */
int split_rows_take(struct split_rows *r, bool all,
                    int (*take)(void *ctx, const struct split_row *row, struct ckpt_err *err),
                    void *ctx, struct ckpt_err *err);
void split_rows_close(struct split_rows *r);

#endif
