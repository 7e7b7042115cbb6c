/*
 * tfevents_out - write TensorBoard event files; tfevents.h has their layout.
 *
 * A file of its own for each run of the program, as TensorBoard's writers make it; TensorBoard
 * reads all files of a folder as one run.  Numbers are simple_value, as torch's SummaryWriter
 * writes them.
 */
#ifndef CKPT_FORMATS_LOGS_TFEVENTS_OUT_H
#define CKPT_FORMATS_LOGS_TFEVENTS_OUT_H

#include "formats/logs/histogram.h"
#include "formats/logs/log_file.h"

struct tfevents_out;

/* events.out.tfevents.TIME.HOST.PID.0 in dir, which is made with those above it. */
int tfevents_out_open(struct tfevents_out **out, const char *dir, struct ckpt_err *err);
/* Values of this step and later, in files before this one, are dropped by readers. */
int tfevents_out_start(struct tfevents_out *o, int64_t step, struct ckpt_err *err);
/* One event. */
int tfevents_out_scalars(struct tfevents_out *o, int64_t step, const struct log_number *v,
                         size_t n, struct ckpt_err *err);
/* Markdown; UTF-8. */
int tfevents_out_text(struct tfevents_out *o, int64_t step, const char *tag, const char *text,
                      struct ckpt_err *err);
int tfevents_out_histogram(struct tfevents_out *o, int64_t step, const char *tag,
                           const struct histogram *h, struct ckpt_err *err);
void tfevents_out_close(struct tfevents_out *o);        /* NULL accepted */

#endif
