/* together - several paths in one answer: differences of two checkpoints, or runs side by side;
 * see inspect.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/logs/metrics_log.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/page/curves.h"

/* Newest values of a run, from its trainer_state.json and its metrics.jsonl. */
static const struct {
    const char *key, *title;
} facts[] = {
    {"zero_stage", "stage"},
    {"ranks", "ranks"},
    {"step", "step"},
    {"epoch", "epoch"},
    {"loss", "last loss"},
    {"train_loss", "mean loss"},
    {"eval_loss", "eval loss"},
    {"best_metric", "best"},
    {"train_runtime", "seconds"},
    {"train_samples_per_second", "samples/s"},
    {"train_steps_per_second", "steps/s"},
    {"tokens_per_second", "tokens/s"},
    {"communication_share", "communication"},
    {"eval_samples_per_second", "eval samples/s"},
    {"device_memory_peak", "peak MiB"},
    {"device_memory_mean", "mean MiB"},
    {"device_memory_least", "least MiB"},
};
#define N_FACTS (sizeof facts / sizeof facts[0])
#define STEP    2                       /* of facts */

static void take_row(double *value, const json_t *row)
{
    for (size_t k = 0; k < N_FACTS; k++) {
        const json_t *v = json_object_get(row, facts[k].key);

        if (json_is_number(v))
            value[k] = json_number_value(v);
    }
}

static void take_state(double *value, const json_t *state)
{
    const json_t *log = json_object_get(state, "log_history"), *v;
    json_t *row;
    size_t i;

    json_array_foreach ((json_t *)log, i, row)
        take_row(value, row);
    take_row(value, state);
    v = json_object_get(state, "global_step");
    if (json_is_number(v))
        value[STEP] = json_number_value(v);
}

int64_t inspect_saved_number(const struct ckpt_entry *e)
{
    int64_t step = e->is_dir ? ckpt_path_number(e->name, "checkpoint-") : -1;

    return step >= 0 || !e->is_dir ? step : ckpt_path_number(e->name, "checkpoint_");
}

int inspect_newest_state(char name[INSPECT_STATE_NAME], struct ckpt_dir *dir,
                         struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    int64_t best = 0;
    size_t n = 0;
    int rc = 0;

    *name = '\0';
    if (ckpt_dir_has(dir, "trainer_state.json"))
        snprintf(name, INSPECT_STATE_NAME, "trainer_state.json");
    else
        rc = ckpt_dir_list(dir, &a, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t number = inspect_saved_number(&entry[i]);
        char file[INSPECT_STATE_NAME];

        snprintf(file, sizeof file, "%s/trainer_state.json", entry[i].name);
        if (number < 0 || (*name && number < best) || !ckpt_dir_has(dir, file))
            continue;
        best = number;
        snprintf(name, INSPECT_STATE_NAME, "%s", file);
    }
    ckpt_arena_release(&a);
    return rc;
}

static int take_file(double *value, struct ckpt_dir *dir, const char *name, struct ckpt_err *err)
{
    struct ckpt_file *f;
    json_t *state = NULL;
    int rc = ckpt_file_open_at(&f, dir, name, err);

    if (rc)
        return rc;
    rc = ckpt_json_read(&state, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    if (rc == 0)
        take_state(value, state);
    json_decref(state);
    ckpt_file_close(f);
    return rc;
}

static int take_metrics(double *value, struct ckpt_dir *dir, struct ckpt_err *err)
{
    json_t *rows = NULL, *row;
    struct ckpt_file *f;
    size_t i;
    int rc = ckpt_file_open_at(&f, dir, METRICS_LOG_NAME, err);

    if (rc == 0)
        rc = metrics_log_read(&rows, f, err);
    json_array_foreach (rows, i, row)
        take_row(value, row);
    json_decref(rows);
    ckpt_file_close(f);
    return rc;
}

/* CKPT_ENOTFOUND when path is not a run. */
static int take_run(double *value, const char *path, bool follow, struct ckpt_err *err)
{
    struct ckpt_dir *dir;
    char name[INSPECT_STATE_NAME] = "";
    bool found = true;
    int rc = ckpt_path_dir(&dir, path, follow ? CKPT_FOLLOW : 0, err);

    for (size_t k = 0; k < N_FACTS; k++)
        value[k] = NAN;
    if (rc)
        return rc;
    rc = inspect_newest_state(name, dir, err);
    if (rc == 0 && *name)
        rc = take_file(value, dir, name, err);
    if (rc == 0 && ckpt_dir_has(dir, METRICS_LOG_NAME))
        rc = take_metrics(value, dir, err);
    else if (rc == 0)
        found = *name;
    if (rc == 0 && !found)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "no run: neither trainer_state.json nor "
                       "metrics.jsonl is in it, nor a checkpoint-<step> with one");
    ckpt_dir_close(dir);
    return rc ? ckpt_err_in(err, "%s", path) : 0;
}

static int compare_runs(struct out *o, bool json, bool follow, const char *const *path, size_t n,
                        struct ckpt_err *err)
{
    struct out_column column[1 + N_FACTS] = {{"path", "run", OUT_LEFT}};
    double *value = ckpt_alloc(n * N_FACTS, sizeof *value);
    size_t shown[N_FACTS], n_shown = 0;
    int rc = value ? 0 : ckpt_nomem(err, n * N_FACTS * sizeof *value);

    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = take_run(value + i * N_FACTS, path[i], follow, err);
    for (size_t k = 0; rc == 0 && k < N_FACTS; k++) {
        bool any = json;                /* people are not shown columns that no run fills */

        for (size_t i = 0; i < n; i++)
            any |= !isnan(value[i * N_FACTS + k]);
        if (any)
            shown[n_shown++] = k;
    }
    for (size_t k = 0; rc == 0 && k < n_shown; k++)
        column[1 + k] = (struct out_column){facts[shown[k]].key, facts[shown[k]].title, OUT_RIGHT};
    if (rc == 0)
        out_table(o, "runs", column, 1 + n_shown);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        out_cell_str(o, path[i]);
        for (size_t k = 0; k < n_shown; k++)
            out_cell_known(o, value[i * N_FACTS + shown[k]]);
    }
    if (rc == 0)
        out_table_end(o);
    ckpt_free(value);
    return rc;
}

static int diff_two(struct out *o, const struct inspect_want *w, const struct cli *cli,
                    const char *const *path, bool *differ, struct ckpt_err *err)
{
    struct ckpt_open_opts opts = {.tag = w->tag, .optimizer = w->optimizer,
                                  .follow = cli->follow, .spool = cli_spool()};
    struct ckpt_source *a = NULL, *b = NULL;
    int rc = inspect_open_values(&a, path[0], &opts, err);

    if (rc == 0)
        rc = inspect_open_values(&b, path[1], &opts, err);
    if (rc == 0) {
        out_str(o, "path", "first", path[0]);
        out_str(o, "compared_with", "second", path[1]);
        rc = inspect_diff(o, w, a, b, (int)cli->jobs, differ, err);
    }
    ckpt_source_close(a);
    ckpt_source_close(b);
    return rc;
}

/* Which options apply depends on what the paths are: runs are drawn, tensors are selected. */
static int check_options(const struct inspect_want *w, bool diff, struct ckpt_err *err)
{
    const char *chosen = w->glob.n ? "glob" : w->tag ? "tag" : w->optimizer ? "optimizer" : NULL;

    if (!diff && chosen)
        return ckpt_fail(err, CKPT_EUSAGE, "--%s has no effect with --compare of runs", chosen);
    if (diff && w->plot)
        return ckpt_fail(err, CKPT_EUSAGE, "--plot has no effect with --compare of two "
                         "checkpoints that are no runs");
    return 0;
}

static int put_together(struct out *o, const struct inspect_want *w, const struct cli *cli,
                        const char *const *path, size_t n, bool diff, bool *differ,
                        struct ckpt_err *err)
{
    bool json = cli->json || w->html, any = false;
    int rc;

    if (diff)
        return diff_two(o, w, cli, path, differ, err);
    rc = compare_runs(o, json, cli->follow, path, n, err);
    if (rc == 0 && w->curves)
        rc = inspect_gather_runs(o, w->curves, path, n, cli->follow, err);
    if (rc == 0 && w->plot)
        rc = inspect_overlay(o, path, n, cli->follow, json, &any, err);
    if (rc == 0 && w->plot && !any)
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "--plot: no run has a curve: neither losses of two "
                       "steps in metrics.jsonl nor a memory.csv");
    return rc;
}

int inspect_together(const struct inspect_want *w, struct cli *cli, const char *const *path,
                     size_t n, struct ckpt_err *err)
{
    struct page_curves curves = {0};
    struct inspect_want page = *w;
    struct ckpt_err not_run = {0};
    bool differ = false, diff = w->diff;
    double value[N_FACTS];
    struct out *o;
    int rc;

    if (w->diff && n != 2)
        return ckpt_fail(err, CKPT_EUSAGE, "--diff: %zu path%s; two are wanted, a checkpoint and "
                         "the one to hold against it", n, n == 1 ? "" : "s");
    if (n == 0)
        return ckpt_fail(err, CKPT_EUSAGE, "--compare: no path; the folders of runs are wanted");
    /* Two checkpoints that are not runs: compare their tensors. */
    if (!diff && n == 2)
        diff = take_run(value, path[0], cli->follow, &not_run) &&
               take_run(value, path[1], cli->follow, &not_run);
    if ((rc = check_options(w, diff, err)) != 0 ||
        (rc = out_new(&o, cli->json || w->html, err)) != 0)
        return rc;
    page.curves = w->html ? &curves : NULL;
    rc = put_together(o, &page, cli, path, n, diff, &differ, err);
    if (rc)
        out_abort(o);
    else
        rc = inspect_finish(o, &page, err);
    page_curves_release(&curves);
    if (rc == 0 && w->html)
        rc = cli_artifact(cli, w->html, NULL, err);
    if (rc)
        return rc;
    return differ ? ckpt_fail(err, CKPT_ENO, "%s and %s differ", path[0], path[1]) : 0;
}
