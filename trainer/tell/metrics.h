/*
 * metrics - what a run tells of its steps: a human line through the log hook, a JSON object in
 * metrics.jsonl, a row of trainer_state.json's history, the reports (reports.h), and an event for
 * the caller (event.h).
 *
 * metrics.jsonl lies in the output directory and is appended to; each run begins with a row of its
 * own there (formats/logs/metrics_log.h), and every row has the time and the run's id.  Numbers
 * that are not finite are null: JSON has no others.  A file that cannot be written ends no run: the
 * first failure is a warning.
 */
#ifndef CKPT_TRAINER_TELL_METRICS_H
#define CKPT_TRAINER_TELL_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/logs/histogram.h"
#include "trainer/run/evaluate.h"
#include "trainer/tell/event.h"
#include "trainer/tell/memory_log.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"
#include "trainer/run/state.h"
#include "trainer/run/step.h"

struct metrics;

struct metrics_opts {
    const struct settings *settings;
    const struct session  *session;
    struct run_state      *state;       /* of the run; rows are added to its history */
    const char            *resumed_from;/* a checkpoint; "": none */
    bool                   continues;   /* it is one of this folder */
    run_event_fn          *event;       /* NULL: nobody listens */
    void                  *ctx;
};

/* Only rank 0 writes; the others keep the history alone.  opts' pointers outlive it. */
int metrics_open(struct metrics **out, const struct metrics_opts *opts, struct ckpt_err *err);
/* Refuse what that would refuse of files and folders as they are now, and create nothing. */
int metrics_ready(const struct settings *s, struct ckpt_err *err);
/* status: the program's, for reports that tell how a run ended.  NULL accepted. */
void metrics_close(struct metrics *m, int status);

/* A step is done, and state tells of it: add it to the next line's means. */
void metrics_count(struct metrics *m, const struct step_result *res, double lr);
/* The line of the steps counted since the last one. */
int metrics_step(struct metrics *m, struct ckpt_err *err);
int metrics_eval(struct metrics *m, const struct evaluate_result *e, struct ckpt_err *err);
/* A checkpoint that is complete. */
struct metrics_save {
    const char *path;
    int64_t     step;                   /* that it is of */
    double      seconds;
    double      held;                   /* of these steps waited for it so long; negative: all */
    int         folders;                /* that it lies in */
};
void metrics_saved(struct metrics *m, const struct metrics_save *s);
/* A tensor's histogram at the step in work; a histograms_fn whose context is the metrics. */
void metrics_histogram(void *metrics, const char *tag, const struct histogram *h);
/* The closing row (results_of), to which memory's figures are added; memory of n 0: nobody measured
 * it. */
int metrics_closing(struct metrics *m, json_t *row, int64_t steps, double seconds,
                    const struct memory_figures *memory, struct ckpt_err *err);
/* A number as JSON, null when it is not finite; a new reference. */
json_t *metrics_number(double v);
/* A warning where the loss ended far above where it began. */
void metrics_warn(const struct metrics *m);

#endif
