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
#define CONTROL "TrainerControl"
#define LOSS    "loss_since_log"
#define STEPS   "steps_since_log"
#define NORM    "grad_norm"

/* Of attributes the Trainer makes members of its control object, and uses those it knows: here is
 * what it forgets when it is stopped between two log lines. */
static json_t *unlogged(const struct run_state *s)
{
    bool finite = isfinite(s->loss_since_log) && isfinite(s->last_norm);

    return s->steps_since_log && finite
               ? json_pack("{s:f,s:f,s:I}", LOSS, s->loss_since_log, NORM, s->last_norm, STEPS,
                           (json_int_t)s->steps_since_log)
               : json_object();
}

/* The Trainer's callbacks with a state: what its control flags are between two steps, and how far
 * early stopping is. */
static json_t *callbacks(const struct run_state *s)
{
    json_t *all = json_pack("{s:{s:{s:b,s:b,s:b,s:b,s:b},s:o}}", CONTROL, "args",
                            "should_epoch_stop", 0, "should_evaluate", s->eval_due, "should_log", 0,
                            "should_save", 1, "should_training_stop", 0, "attributes",
                            unlogged(s));

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

/* A checkpoint's path as the state tells it: of an absolute one the run's folder and its own, since
 * folders above name people and machines. */
static const char *told(const char *path)
{
    size_t at = strlen(path);

    if (path[0] != '/')
        return path;
    for (int parts = 0; at > 0; at--)
        if (path[at - 1] == '/' && ++parts == 2)
            break;
    return path + at;
}

json_t *run_state_json(const struct run_state *s)
{
    bool best = !isnan(s->best_metric);

    return json_pack(
        "{s:o,s:o,s:o,s:f,s:I,s:I,s:b,s:b,s:b,s:O,s:I,s:I,s:I,s:I,s:I,s:o,s:f,s:I,s:n,s:n}",
        "best_global_step", best ? json_integer(s->best_global_step) : json_null(),
        "best_metric", best ? json_real(s->best_metric) : json_null(),
        "best_model_checkpoint",
        s->best_model_checkpoint[0] ? json_string(told(s->best_model_checkpoint)) : json_null(),
        "epoch", s->epoch, "eval_steps", (json_int_t)s->eval_steps, "global_step",
        (json_int_t)s->global_step, "is_hyper_param_search", 0, "is_local_process_zero", 1,
        "is_world_process_zero", 1, "log_history", s->log_history, "logging_steps",
        (json_int_t)s->logging_steps, "max_steps", (json_int_t)s->max_steps,
        "num_input_tokens_seen", (json_int_t)s->num_input_tokens_seen, "num_train_epochs",
        (json_int_t)s->num_train_epochs, "save_steps", (json_int_t)s->save_steps,
        "stateful_callbacks", callbacks(s), "total_flos", s->total_flos, "train_batch_size",
        (json_int_t)s->train_batch_size, "trial_name", "trial_params");
}

static json_t *attribute(const json_t *callbacks, const char *of, const char *name)
{
    return json_object_get(json_object_get(json_object_get(callbacks, of), "attributes"), name);
}

int run_state_read(struct run_state *s, const json_t *json, struct ckpt_err *err)
{
    json_t *of = json_object_get(json, "stateful_callbacks"), *log;
    json_t *counter = attribute(of, STOPPER, COUNTER), *steps = attribute(of, CONTROL, STEPS);
    json_t *args = json_object_get(json_object_get(of, CONTROL), "args");
    json_t *loss = attribute(of, CONTROL, LOSS), *norm = attribute(of, CONTROL, NORM);
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
    s->eval_due = json_is_true(json_object_get(args, "should_evaluate"));
    s->steps_since_log = json_integer_value(steps) > 0 ? json_integer_value(steps) : 0;
    s->loss_since_log = s->steps_since_log ? json_number_value(loss) : 0;
    s->last_norm = s->steps_since_log ? json_number_value(norm) : 0;
    snprintf(s->best_model_checkpoint, sizeof s->best_model_checkpoint, "%s", best);
    json_decref(s->log_history);
    s->log_history = json_deep_copy(log);
    return s->log_history ? 0 : ckpt_nomem(err, sizeof *log);
}
