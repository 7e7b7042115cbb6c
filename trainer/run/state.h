/*
 * run/state - how far a run is and what it has logged: trainer_state.json, both ways.
 *
 * Source of keys: transformers 5.17 trainer_callback.py, TrainerState.
 */
#ifndef CKPT_TRAINER_RUN_STATE_H
#define CKPT_TRAINER_RUN_STATE_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

struct run_state {
    int64_t global_step;
    int64_t max_steps;
    double  epoch;
    int64_t num_train_epochs;           /* rounded up, as the Trainer writes it */
    int64_t logging_steps, eval_steps, save_steps;
    int64_t train_batch_size;           /* per device */
    int64_t num_input_tokens_seen;
    double  total_flos;
    double  best_metric;                /* of the evaluations so far; NaN: none yet */
    int64_t early_stopping_patience;    /* of the run; 0: evaluations do not end it */
    double  early_stopping_threshold;
    int64_t evals_without_progress;     /* in a row, up to now */
    double  loss_since_log;             /* sum of steps that no line has told yet */
    int64_t steps_since_log;            /* how many */
    double  last_norm;                  /* the gradient's, of the last of them */
    bool    eval_due;                   /* a signal ended the evaluation of this step */
    int64_t best_global_step;
    char    best_model_checkpoint[4096];/* "" for none */
    /* Of a run that goes on from another program's checkpoint, a file, or with other data: */
    int64_t data_shift;                 /* position in the data less global_step */
    int64_t optim_lag;                  /* steps that the optimizer's own count lacks, beside
                                           skipped ones */
    bool    same_data;                  /* the checkpoint says that it had this run's data */
    bool    other_rates;                /* its groups' learning rates are not the settings' */
    double  base_lr;                    /* that its schedule has; NaN: as the settings say */
    json_t *log_history;                /* array, owned */
};

int run_state_init(struct run_state *s, struct ckpt_err *err);
void run_state_release(struct run_state *s);
/* Append a row; takes row (NULL: out of memory). */
int run_state_log(struct run_state *s, json_t *row, struct ckpt_err *err);
/* The whole as a new JSON object. */
json_t *run_state_json(const struct run_state *s);
/* Continue from what trainer_state.json says. */
int run_state_read(struct run_state *s, const json_t *json, struct ckpt_err *err);

#endif
