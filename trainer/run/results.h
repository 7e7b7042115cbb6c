/*
 * results - what a finished run leaves in its output folder beside its checkpoints: its figures
 * and its model.
 *
 * train_results.json, eval_results.json, all_results.json and trainer_state.json are as HF
 * Trainer's log_metrics, save_metrics and save_state leave them.
 * Source: transformers 5.17 trainer_pt_utils.py.
 */
#ifndef CKPT_TRAINER_RUN_RESULTS_H
#define CKPT_TRAINER_RUN_RESULTS_H

#include "trainer/run/run_own.h"

/* Figures of the training that ended, as a row of the log; a new reference, NULL: no memory. */
json_t *results_of(const struct run_job *r, double seconds);
/* One line: the losses from the first to the last of the history.  Rank 0. */
void results_tell(const struct run_job *r);
/* Write row and the last evaluation as files, and tell them as tables to those who debug; the
 * evaluations of epochs to all.  Rank 0. */
int results_write(const struct run_job *r, json_t *row, struct ckpt_err *err);
/*
 * Unless the settings say otherwise, the model that the run ends with to the folder itself: the
 * one in memory, or the best checkpoint's, which is loaded first.  Collective.
 */
int results_model(struct run_job *r, struct ckpt_err *err);
/* Whether the folder lacks what a finished run leaves. */
bool results_missing(const struct run_job *r);

#endif
