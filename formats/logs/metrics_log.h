/*
 * metrics_log - metrics.jsonl, which every run in an output folder appends to: the newest run's
 * rows, and those of the runs that it continued, up to the step where it did.
 *
 * A run begins with a row {"run": id, "start_step": n, "continues": whether from a checkpoint of
 * this folder, "resumed_from", "max_steps", "time", "version", "device", "ranks", "threads",
 * "zero_stage", "offload"}.  All other rows have "step".
 */
#ifndef CKPT_FORMATS_LOGS_METRICS_LOG_H
#define CKPT_FORMATS_LOGS_METRICS_LOG_H

#include <jansson.h>

#include "libckpt/file.h"

#define METRICS_LOG_NAME "metrics.jsonl"

/* The rows as a new array, including the first rows of runs; an incomplete last line is dropped.
 * NaN and Infinity, as Python writes them, are strings of that name. */
int metrics_log_read(json_t **rows, struct ckpt_file *file, struct ckpt_err *err);
/*
 * Keep only the rows of the newest run.  Runs of programs that write no first row are separated
 * where the step goes back.
 */
int metrics_log_newest(json_t *rows, struct ckpt_err *err);

#endif
