/*
 * reports - what other programs show of a run: TensorBoard's events, a W&B run, a CSV file.
 *
 * Rank 0's.  What is asked for is opened before the first step, and a folder that cannot be made
 * is refused then.  Later failures, such as a full disk, are one warning for each kind of report:
 * the run goes on, and so do reports once there is space again.
 */
#ifndef CKPT_TRAINER_TELL_REPORTS_H
#define CKPT_TRAINER_TELL_REPORTS_H

#include <jansson.h>

#include "formats/logs/histogram.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"
#include "trainer/tell/usage.h"

struct reports;

struct reports_start {
    const struct settings *settings;
    const struct session  *session;
    const char            *id;          /* of the run, hexadecimal */
    int64_t                step;        /* done before */
    bool                   continues;   /* a run of the same output folder */
};

int reports_open(struct reports **out, const struct reports_start *start, struct ckpt_err *err);
/* Refuse what that would refuse of files and folders as they are now, and create nothing. */
int reports_ready(const struct settings *s, struct ckpt_err *err);
/*
 * A row of metrics.jsonl; its numbers get the tags that HF Trainer's callbacks write: train/loss,
 * eval/loss.  closing: the run's last.  All accept NULL for reports that are not there.
 */
void reports_row(struct reports *r, const json_t *row, bool closing);
/* What is printed beside it. */
void reports_line(struct reports *r, const char *line);
void reports_histogram(struct reports *r, int64_t step, const char *tag,
                       const struct histogram *h);
/* Figures of the machine, at most every ten seconds. */
void reports_usage(struct reports *r, struct usage *u);
/* status: the program's. */
void reports_close(struct reports *r, int status);

#endif
