/*
 * metrics - one human line a step through the log hook, one JSON object a step in metrics.jsonl.
 *
 * metrics.jsonl lies in the output directory and is appended to; each run begins with a row of its
 * own there (formats/logs/metrics_log.h), and every row has the time.  Numbers that are not finite
 * are null: JSON has no others.
 */
#ifndef CKPT_TRAINER_RUN_METRICS_H
#define CKPT_TRAINER_RUN_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct metrics;

/* A run's first row. */
struct metrics_start {
    int64_t     step, max_steps;    /* done before, and in all */
    const char *resumed_from;       /* a checkpoint; "": none */
    bool        continues;          /* it is one of this folder */
};

/* speak: only rank 0 writes; the others' calls do nothing. */
int metrics_open(struct metrics **out, const char *output_dir, bool speak,
                 const struct metrics_start *start, struct ckpt_err *err);
void metrics_close(struct metrics *m);

struct metrics_step {
    int64_t step, max_steps;
    double  epoch, loss, grad_norm, learning_rate;
    int64_t tokens;             /* since the last line */
    double  seconds;            /* since the last line */
};

/* Print the line, append the object; *row gets HF's log_history row (a new reference). */
int metrics_step(struct metrics *m, const struct metrics_step *s, json_t **row,
                 struct ckpt_err *err);
/* A number as JSON, null when it is not finite; a new reference. */
json_t *metrics_number(double v);
/* A number for people: fixed, with so many decimals, or in powers of ten where that would not fit
 * into a column.  Returns text. */
char *metrics_text(char text[32], double v, int decimals);
/* Any other row: evaluation, summary.  Borrows row; line is what a person reads. */
int metrics_row(struct metrics *m, const json_t *row, const char *line, struct ckpt_err *err);

#endif
