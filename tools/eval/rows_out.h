/*
 * eval/rows_out - generated rows as lines of JSON, written as they finish.
 *
 * A row: {"index", "prompt", "prediction", "reference", "finish_reason", "tokens"[, "base"]
 * [, "logprobs"]}.  Lines go to FILE.part, which becomes FILE once all are written and durable; a
 * failure leaves the part with the rows that were finished.
 */
#ifndef CKPT_TOOLS_EVAL_ROWS_OUT_H
#define CKPT_TOOLS_EVAL_ROWS_OUT_H

#include "tools/eval/eval.h"

struct rows_out;

/* Whether path may be written: CKPT_ECREATE where it exists, but for overwrite, is a
 * directory, or its folder is not there or refuses. */
int rows_out_check(const char *path, bool overwrite, struct ckpt_err *err);
/* Begin to write path, or - for standard output.  CKPT_ECREATE as above, and where
 * another run is writing it. */
int rows_out_open(struct rows_out **out, const char *path, bool in_order, bool overwrite,
                  struct ckpt_err *err);
/* Row i of r has finished; rows before it that have not are awaited with in_order.  base: the
 * same rows of another model, or NULL. */
int rows_out_put(struct rows_out *out, const struct eval_result *r, size_t i,
                 const struct eval_result *base, struct ckpt_err *err);
/* All rows have been written: make the file durable under its name. */
int rows_out_commit(struct rows_out *out, struct ckpt_err *err);
/* Close; what was written and not committed stays in FILE.part. */
void rows_out_close(struct rows_out *out);

#endif
