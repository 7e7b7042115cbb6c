/* results - see results.h. */
#include "trainer/run/results.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/families/arch.h"
#include "libckpt/base/buf.h"
#include "libckpt/base/json.h"
#include "libckpt/commit.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/checkpoint/final.h"
#include "trainer/checkpoint/resume.h"
#include "trainer/comm/report.h"
#include "trainer/tell/card.h"

#define MOST_EVALUATIONS 20        /* in the table at the end */

json_t *results_of(const struct run_job *r, double seconds)
{
    double s = fmax(seconds, 1e-9);

    return json_pack("{s:f,s:I,s:f,s:o,s:f,s:f,s:f}", "epoch", r->state.epoch, "step",
                     (json_int_t)r->state.global_step, "total_flos", r->state.total_flos,
                     "train_loss", r->n_updates > 0
                         ? metrics_number(r->loss_sum / (double)r->n_updates) : json_null(),
                     "train_runtime", seconds, "train_samples_per_second",
                     (double)r->n_samples / s, "train_steps_per_second",
                     (double)(r->state.global_step - r->first_step) / s);
}

static int put(const struct run_job *r, const char *name, const json_t *value,
               struct ckpt_err *err)
{
    struct ckpt_buf b;
    char path[4200];
    int rc;

    snprintf(path, sizeof path, "%s/%s", r->s->output_dir, name);
    ckpt_buf_init(&b, (size_t)1 << 28);
    rc = ckpt_json_write(&b, value, 4, true, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? ckpt_out_put(path, b.data, b.len, err) : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

static json_t *last_evaluation(const struct run_job *r)
{
    const json_t *log = r->state.log_history;

    for (size_t i = json_array_size(log); i-- > 0;)
        if (json_object_get(json_array_get(log, i), "eval_loss"))
            return json_array_get(log, i);
    return NULL;
}

/* A table of the figures, in the order of their names: the same as in the files, for those who ask
 * for all. */
static void tell(const char *title, const json_t *row)
{
    static const char *const names[] = {
        "epoch", "eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
        "perplexity", "total_flos", "train_loss", "train_runtime", "train_samples_per_second",
        "train_steps_per_second"};

    ckpt_log(CKPT_LOG_DEBUG, "%s", title);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *v = json_object_get(row, names[i]);

        if (json_is_number(v))
            ckpt_log(CKPT_LOG_DEBUG, "  %-24s = %10.6g", names[i], json_number_value(v));
    }
}

/* The evaluations of the run, the newest at the end; one alone is in the summary.  Those of epochs
 * are few and far from each other; others are in the lines above, and here for those who ask. */
static void tell_evaluations(const struct run_job *r)
{
    const enum ckpt_log_level level = strcmp(r->s->eval_strategy, "epoch") == 0 ? CKPT_LOG_NOTE
                                                                                : CKPT_LOG_DEBUG;
    const json_t *log = r->state.log_history;
    size_t found = 0, skip;
    json_t *row;
    size_t i;

    json_array_foreach ((json_t *)log, i, row)
        found += json_object_get(row, "eval_loss") != NULL;
    if (found < 2)
        return;
    skip = found > MOST_EVALUATIONS ? found - MOST_EVALUATIONS : 0;
    ckpt_log(level, "%s", skip ? "last evaluations" : "evaluations");
    ckpt_log(level, "%8s %10s %12s %14s", "step", "epoch", "eval loss", "samples/s");
    json_array_foreach ((json_t *)log, i, row) {
        const json_t *loss = json_object_get(row, "eval_loss");

        if (!loss || (skip && skip--))
            continue;
        ckpt_log(level, "%8lld %10.4g %12.6g %14.4g",
                 (long long)json_integer_value(json_object_get(row, "step")),
                 json_number_value(json_object_get(row, "epoch")),
                 json_is_number(loss) ? json_number_value(loss) : NAN,
                 json_number_value(json_object_get(row, "eval_samples_per_second")));
    }
}

/* "NAME 7.5771 -> 3.7626", first and last of the history, and with `best` the lowest where it is
 * neither.  Returns its length; 0: the history has none. */
static size_t put_course(char *text, size_t size, const char *name, const char *key, bool best,
                         const json_t *log)
{
    double first = NAN, last = NAN, lowest = NAN;
    long long step = 0;
    json_t *row;
    size_t i, n;

    json_array_foreach ((json_t *)(uintptr_t)log, i, row) {
        const json_t *v = json_object_get(row, key);

        if (!v)
            continue;
        last = json_is_number(v) ? json_number_value(v) : NAN;
        first = isnan(first) ? last : first;
        if (isfinite(last) && !(last >= lowest)) {
            lowest = last;
            step = json_integer_value(json_object_get(row, "step"));
        }
    }
    if (isnan(first))
        return 0;
    n = (size_t)snprintf(text, size, "%s %.6g", name, first);
    if (!(last == first))
        n += (size_t)snprintf(text + n, size - n, " -> %.6g", last);
    if (best && lowest < first && !(lowest == last))
        n += (size_t)snprintf(text + n, size - n, " (lowest %.6g, step %lld)", lowest, step);
    return n;
}

void results_tell(const struct run_job *r)
{
    const json_t *log = r->state.log_history;
    char line[256];
    size_t n = put_course(line, sizeof line, "loss", "loss", false, log);
    size_t gap = n > 0 ? 2 : 0;         /* of "; " */

    if (put_course(line + n + gap, sizeof line - n - gap, "eval loss", "eval_loss", true, log) > 0)
        memcpy(line + n, "; ", gap);
    else if (n == 0)
        return;
    ckpt_log(CKPT_LOG_NOTE, "%s", line);
}

int results_write(const struct run_job *r, json_t *row, struct ckpt_err *err)
{
    json_t *last = last_evaluation(r);
    json_t *all = json_object(), *train = json_copy(row), *eval = json_object();
    int rc = all && train && eval ? 0 : ckpt_nomem(err, sizeof *all);

    if (rc == 0 && ((last && json_object_update(eval, last)) ||
                    (last && json_object_set_new(eval, "perplexity", metrics_number(exp(
                         json_number_value(json_object_get(last, "eval_loss")))))) ||
                    json_object_update(all, eval) || json_object_update(all, train)))
        rc = ckpt_nomem(err, sizeof *all);
    json_object_del(train, "step");
    json_object_del(eval, "step");
    json_object_del(all, "step");
    if (rc == 0)
        rc = put(r, "train_results.json", train, err);
    if (rc == 0 && last)
        rc = put(r, "eval_results.json", eval, err);
    if (rc == 0) {
        json_t *state = run_state_json(&r->state);

        rc = state ? put(r, "trainer_state.json", state, err) : ckpt_nomem(err, sizeof *state);
        json_decref(state);
    }
    if (rc == 0)
        rc = put(r, "all_results.json", all, err);
    if (rc == 0) {
        tell("train metrics", train);
        if (last)
            tell("eval metrics", eval);
        tell_evaluations(r);
    }
    json_decref(all);
    json_decref(train);
    json_decref(eval);
    return rc;
}

/* The weights of the best checkpoint, where they are not those in memory. */
static int load_best(struct run_job *r, struct ckpt_err *err)
{
    const char *best = r->state.best_model_checkpoint;
    int rc;

    if (!r->s->load_best_model_at_end || r->state.best_global_step == r->state.global_step)
        return 0;
    if (!*best) {
        if (r->session.comm->rank == 0)
            ckpt_log(CKPT_LOG_WARNING, "no checkpoint is the best: the final model is the last "
                     "step's");
        return 0;
    }
    rc = resume_weights(&r->session, best, err);
    if (rc == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "the final model is that of %s", best);
    return rc;
}

int results_model(struct run_job *r, struct ckpt_err *err)
{
    const struct card_facts facts = {
        .checkpoint = &r->checkpoint, .base = r->checkpoint.base ? r->checkpoint.base : "",
        .adapter = r->session.lora != NULL,
        .encoder = r->session.arch->num_encoder_layers > 0,
        .world_size = r->session.comm->world_size};
    char *card = NULL;
    int rc;

    if (!r->s->final_model)
        return 0;
    report_phase("saving the final model");
    if ((rc = load_best(r, err)) != 0)
        return rc;
    if (r->session.comm->rank == 0)
        rc = card_make(&card, &facts, err);
    if ((rc = comm_agree(r->session.comm, rc, err)) == 0)
        rc = final_save(r->s->output_dir, &r->session, &r->checkpoint, card, err);
    ckpt_free(card);
    if (rc == 0 && r->session.comm->rank == 0)
        ckpt_log(CKPT_LOG_NOTE, "the trained model is in %s", r->s->output_dir);
    return rc;
}

bool results_missing(const struct run_job *r)
{
    struct ckpt_err ignored = {0};
    struct ckpt_dir *dir;
    bool missing;

    if (ckpt_dir_open(&dir, r->s->output_dir, 0, &ignored))
        return true;
    missing = !ckpt_dir_has(dir, "all_results.json");
    ckpt_dir_close(dir);
    return missing;
}
