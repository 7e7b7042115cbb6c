/* run/state - see run/state.h. */
#include "trainer/run/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/json.h"
#include "libckpt/mem.h"

int run_state_init(struct run_state *s, struct ckpt_err *err)
{
    memset(s, 0, sizeof *s);
    s->best_metric = s->base_lr = NAN;
    s->log_history = json_array();
    return s->log_history ? 0 : ckpt_nomem(err, sizeof *s);
}

void run_state_release(struct run_state *s)
{
    json_decref(s->log_history);
    memset(s, 0, sizeof *s);
}

int run_state_log(struct run_state *s, json_t *row, struct ckpt_err *err)
{
    return row && json_array_append_new(s->log_history, row) == 0
               ? 0 : ckpt_nomem(err, sizeof *row);
}

#define STOPPER "EarlyStoppingCallback"
#define COUNTER "early_stopping_patience_counter"

/* The Trainer's callbacks with a state: what its control flags are between two steps, and how far
 * early stopping is. */
static json_t *callbacks(const struct run_state *s)
{
    json_t *all = json_pack("{s:{s:{s:b,s:b,s:b,s:b,s:b},s:{}}}", "TrainerControl", "args",
                            "should_epoch_stop", 0, "should_evaluate", 0, "should_log", 0,
                            "should_save", 1, "should_training_stop", 0, "attributes");

    if (all && s->early_stopping_patience > 0 &&
        json_object_set_new(all, STOPPER, json_pack(
            "{s:{s:I,s:f},s:{s:I}}", "args", "early_stopping_patience",
            (json_int_t)s->early_stopping_patience, "early_stopping_threshold",
            s->early_stopping_threshold, "attributes", COUNTER,
            (json_int_t)s->evals_without_progress))) {
        json_decref(all);
        return NULL;
    }
    return all;
}

json_t *run_state_json(const struct run_state *s)
{
    bool best = !isnan(s->best_metric);

    return json_pack(
        "{s:o,s:o,s:o,s:f,s:I,s:I,s:b,s:b,s:b,s:O,s:I,s:I,s:I,s:I,s:I,s:o,s:f,s:I,s:n,s:n}",
        "best_global_step", best ? json_integer(s->best_global_step) : json_null(),
        "best_metric", best ? json_real(s->best_metric) : json_null(),
        "best_model_checkpoint",
        s->best_model_checkpoint[0] ? json_string(s->best_model_checkpoint) : json_null(),
        "epoch", s->epoch, "eval_steps", (json_int_t)s->eval_steps, "global_step",
        (json_int_t)s->global_step, "is_hyper_param_search", 0, "is_local_process_zero", 1,
        "is_world_process_zero", 1, "log_history", s->log_history, "logging_steps",
        (json_int_t)s->logging_steps, "max_steps", (json_int_t)s->max_steps,
        "num_input_tokens_seen", (json_int_t)s->num_input_tokens_seen, "num_train_epochs",
        (json_int_t)s->num_train_epochs, "save_steps", (json_int_t)s->save_steps,
        "stateful_callbacks", callbacks(s), "total_flos", s->total_flos, "train_batch_size",
        (json_int_t)s->train_batch_size, "trial_name", "trial_params");
}

int run_state_read(struct run_state *s, const json_t *json, struct ckpt_err *err)
{
    json_t *log, *stopper = json_object_get(json_object_get(json, "stateful_callbacks"), STOPPER);
    json_t *counter = json_object_get(json_object_get(stopper, "attributes"), COUNTER);
    const char *best;
    int rc;

    if ((rc = ckpt_json_int(&s->global_step, json, "global_step", err)) != 0 ||
        (rc = ckpt_json_get(&log, json, "log_history", JSON_ARRAY, err)) != 0 ||
        (rc = ckpt_json_num_or(&s->epoch, json, "epoch", 0, err)) != 0 ||
        (rc = ckpt_json_num_or(&s->total_flos, json, "total_flos", 0, err)) != 0 ||
        (rc = ckpt_json_num_or(&s->best_metric, json, "best_metric", NAN, err)) != 0 ||
        (rc = ckpt_json_int_or(&s->best_global_step, json, "best_global_step", 0, err)) != 0 ||
        (rc = ckpt_json_int_or(&s->num_input_tokens_seen, json, "num_input_tokens_seen", 0,
                               err)) != 0 ||
        (rc = ckpt_json_str_or(&best, json, "best_model_checkpoint", "", err)) != 0)
        return rc;
    if (s->global_step < 0)
        return ckpt_fail(err, CKPT_EFORMAT, "global_step is %lld", (long long)s->global_step);
    s->evals_without_progress = json_integer_value(counter);
    snprintf(s->best_model_checkpoint, sizeof s->best_model_checkpoint, "%s", best);
    json_decref(s->log_history);
    s->log_history = json_deep_copy(log);
    return s->log_history ? 0 : ckpt_nomem(err, sizeof *log);
}
