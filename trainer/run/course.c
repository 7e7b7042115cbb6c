/* course - see course.h. */
#include "trainer/run/course.h"

#include <math.h>
#include <string.h>

#include "trainer/clock.h"

static enum course_when when_of(const char *strategy)
{
    static const char *const name[] = {[COURSE_NO] = "no", [COURSE_STEPS] = "steps",
                                       [COURSE_EPOCH] = "epoch", [COURSE_BEST] = "best"};

    for (int w = COURSE_NO; w < COURSE_BEST; w++)
        if (strcmp(strategy, name[w]) == 0)
            return (enum course_when)w;
    return COURSE_BEST;
}

/* Steps, or a fraction of all. */
static struct course_event event_of(const char *strategy, double every, int64_t total)
{
    return (struct course_event){
        .when = when_of(strategy),
        .every = every > 0 && every < 1 ? (int64_t)ceil(every * (double)total) : (int64_t)every};
}

bool course_evaluates(const struct settings *s)
{
    return s->n_eval > 0 || s->eval_split || s->train_split_ratio > 0;
}

bool course_keeps_best(const struct settings *s)
{
    return s->load_best_model_at_end || s->metric_for_best_model ||
           s->early_stopping_patience > 0 || strcmp(s->save_strategy, "best") == 0;
}

bool course_evaluates_often(const struct settings *s)
{
    enum course_when when = when_of(s->eval_strategy);

    return course_evaluates(s) &&
           (when == COURSE_EPOCH ||
            (when == COURSE_STEPS && (s->eval_steps > 0 || settings_given(s, "eval_strategy"))));
}

/* The metric's name without the prefix that logs have. */
static const char *metric_of(const struct settings *s)
{
    const char *name = s->metric_for_best_model ? s->metric_for_best_model : "loss";

    return strncmp(name, "eval_", 5) == 0 ? name + 5 : name;
}

/* Evaluations and saves that must fall together. */
static int check_best(const struct settings *s, struct ckpt_err *err)
{
    double saves = s->save_steps, evals = s->eval_steps > 0 ? s->eval_steps : s->logging_steps;

    if (strcmp(s->save_strategy, "best") == 0)
        return 0;
    if (strcmp(s->save_strategy, s->eval_strategy) != 0)
        return ckpt_fail(err, CKPT_ECONFIG, "`load_best_model_at_end` needs a checkpoint of each "
                         "evaluation: `save_strategy %s` is not `eval_strategy %s`",
                         s->save_strategy, s->eval_strategy);
    if (strcmp(s->save_strategy, "steps") == 0 &&
        fabs(saves / evals - rint(saves / evals)) > 1e-9)
        return ckpt_fail(err, CKPT_ECONFIG, "`load_best_model_at_end` needs a checkpoint of "
                         "evaluations: `save_steps %g` is no multiple of `%s %g`", saves,
                         s->eval_steps > 0 ? "eval_steps" : "logging_steps", evals);
    return 0;
}

int course_check(const struct settings *s, struct ckpt_err *err)
{
    const char *metric = metric_of(s);
    const char *asks = s->load_best_model_at_end                  ? "load_best_model_at_end"
                       : strcmp(s->save_strategy, "best") == 0    ? "save_strategy best"
                       : s->early_stopping_patience > 0 ? "early_stopping_patience" : NULL;
    const struct { const char *name; double value; } steps[] = {
        {"logging_steps", s->logging_steps}, {"eval_steps", s->eval_steps},
        {"save_steps", s->save_steps}};

    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        if (steps[i].value > 1 && floor(steps[i].value) != steps[i].value)
            return ckpt_fail(err, CKPT_ECONFIG, "`%s %g`: a whole number of steps, or a fraction "
                             "of all below 1, is wanted", steps[i].name, steps[i].value);
    if (s->eval_on_start && !course_evaluates(s))
        return ckpt_fail(err, CKPT_ECONFIG, "`eval_on_start` needs `eval_file PATH`");
    if (strcmp(metric, "loss") != 0 && strcmp(metric, "perplexity") != 0)
        return ckpt_fail(err, CKPT_ECONFIG, "`metric_for_best_model %s` is none of: loss, "
                         "perplexity", s->metric_for_best_model);
    if (!asks)
        return 0;
    if (!course_evaluates(s))
        return ckpt_fail(err, CKPT_ECONFIG, "`%s` needs `eval_file PATH`", asks);
    if (strcmp(s->eval_strategy, "no") == 0)
        return ckpt_fail(err, CKPT_ECONFIG, "`%s` needs evaluations: `eval_strategy no` excludes "
                         "it", asks);
    return s->load_best_model_at_end ? check_best(s, err) : 0;
}

void course_init(struct course *c, const struct settings *s, int64_t total, bool has_eval,
                 double started)
{
    bool asked = settings_given(s, "eval_strategy") && s->eval_steps <= 0;
    double eval_steps = asked ? s->logging_steps : s->eval_steps;

    *c = (struct course){
        .log = event_of(s->logging_strategy, s->logging_steps, total),
        .eval = event_of(s->eval_strategy, eval_steps, total),
        .save = event_of(s->save_strategy, s->save_steps, total),
        .log_first = s->logging_first_step,
        .eval_delay = s->eval_delay,
        .perplexity = strcmp(metric_of(s), "perplexity") == 0,
        .greater = strcmp(s->greater_is_better, "true") == 0,
        .patience = s->early_stopping_patience,
        .threshold = s->early_stopping_threshold,
        .deadline = s->max_wall_time > 0 ? started + s->max_wall_time : INFINITY,
    };
    if (!has_eval)
        c->eval.when = COURSE_NO;
}

bool course_due(const struct course *c, const struct course_event *e,
                const struct run_state *state, bool epoch_ends)
{
    bool last = state->global_step == state->max_steps, epoch = e->when == COURSE_EPOCH;

    if (e->when == COURSE_NO || e->when == COURSE_BEST)
        return false;
    if (last || (e == &c->log && c->log_first && state->global_step == 1))
        return true;
    if (e == &c->eval && (epoch ? state->epoch : (double)state->global_step) < c->eval_delay)
        return false;
    return epoch ? epoch_ends : e->every > 0 && state->global_step % e->every == 0;
}

/* With the last step's. */
static int64_t times(const struct course_event *e, int64_t steps, int64_t per_epoch)
{
    int64_t every = e->when == COURSE_EPOCH ? per_epoch : e->every;

    if (e->when == COURSE_NO)
        return 0;
    return every > 0 ? (steps + every - 1) / every : 1;
}

int64_t course_saves(const struct course *c, int64_t steps, int64_t steps_per_epoch)
{
    return times(c->save.when == COURSE_BEST ? &c->eval : &c->save, steps, steps_per_epoch);
}

double course_metric(const struct course *c, const struct evaluate_result *e)
{
    return c->perplexity ? exp(e->loss) : e->loss;
}

void course_judge(const struct course *c, struct run_state *state,
                  const struct evaluate_result *e, bool *better, bool *ends)
{
    double value = course_metric(c, e), best = state->best_metric;
    bool first = isnan(best);

    *better = isfinite(value) && (first || (c->greater ? value > best : value < best));
    if (*better && (first || fabs(value - best) > c->threshold))
        state->evals_without_progress = 0;
    else
        state->evals_without_progress++;
    *ends = c->patience > 0 && state->evals_without_progress >= c->patience;
    if (*better) {
        state->best_metric = value;
        state->best_global_step = state->global_step;
    }
}
