/*
 * metrics_log - metrics.jsonl, which every run in an output folder appends to: the newest run's
 * rows, and of the runs that it went on from those up to where it did.
 *
 * A run begins with a row {"run": id, "start_step": n, "continues": whether from a checkpoint of
 * this folder, "resumed_from", "max_steps", "time", "version"}.  All other rows have "step".
 */
#ifndef CKPT_FORMATS_LOGS_METRICS_LOG_H
#define CKPT_FORMATS_LOGS_METRICS_LOG_H

#include <jansson.h>

#include "libckpt/file.h"

#define METRICS_LOG_NAME "metrics.jsonl"

/* The rows as a new array, the first row of a run among them; a torn last line is left out. */
int metrics_log_read(json_t **rows, struct ckpt_file *file, struct ckpt_err *err);
/*
 * Leave in an array of rows only those of the newest run.  Runs of programs that write no first
 * row are told by their steps, which go back.
 */
int metrics_log_newest(json_t *rows, struct ckpt_err *err);

#endif
