/*
 * gather - what the files of a run say, for its page: curves of metrics.jsonl, trainer_state.json,
 * memory.csv and logs; results, arguments, manifest, checkpoints and samples; see inspect.h.
 *
 * Files that are absent are left out; one that is there and damaged is an error.
 */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/logs/metrics_log.h"
#include "formats/logs/run_log.h"
#include "libckpt/base/json.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/page/curves.h"

/* -- curves ---------------------------------------------------------------------------------- */

/* The chart and the curve of a key that people know under another name. */
static const struct name {
    const char *key, *chart, *curve;
} names[] = {
    {"loss", "Loss", "train"},          {"eval_loss", "Loss", "eval"},
    {"learning_rate", "Learning rate", NULL}, {"lr", "Learning rate", NULL},
    {"grad_norm", "Gradient norm", NULL},
    {"tokens_per_second", "Tokens per second", NULL}, {"seconds", "Seconds per step", NULL},
    {"memory.used [MiB]", "Device memory, MiB", NULL},
    {"utilization.gpu [%]", "GPU utilization, %", NULL}, {"power.draw [W]", "Power, W", NULL},
};

/* Counters, times of a whole run, and what does not change: they make no curve. */
static const char *const no_curve[] = {
    "step", "epoch", "time", "start_step", "max_steps", "total_flos", "train_loss", "*_runtime",
    "*_samples_per_second", "*_steps_per_second", "device_memory_*", "memory.total*",
    "_timestamp", "_runtime", "_step", "global_step",
};

static bool makes_curve(const char *key)
{
    for (size_t i = 0; i < sizeof no_curve / sizeof no_curve[0]; i++)
        if (fnmatch(no_curve[i], key, 0) == 0)
            return false;
    return true;
}

/* "eval_accuracy" -> "Accuracy" and "eval". */
struct place { char chart[200], curve[200]; };

static bool is_part(const char *s, size_t n)
{
    static const char *const parts[] = {"train", "eval", "val", "validation", "test"};

    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strlen(parts[i]) == n && strncmp(parts[i], s, n) == 0)
            return true;
    return false;
}

/* Where values of a key or tag are drawn; of run among others, or NULL.  False: nowhere. */
static bool place_of(struct place *p, const char *tag, const char *run)
{
    const char *key = strchr(tag, '/'), *chart, *curve = NULL;
    size_t before = key ? (size_t)(key++ - tag) : 0;
    bool eval;

    if (!key) {                         /* eval_loss, and W&B's eval.loss */
        before = strcspn(tag, "_.");
        key = tag[before] && is_part(tag, before) && strcmp(tag, "eval_loss") != 0 &&
              strncmp(tag, "train_", 6) != 0 ? tag + before + 1 : (before = 0, tag);
    }
    if (!*key || !makes_curve(tag) || !makes_curve(key))
        return false;
    chart = key;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i].key, key) == 0) {
            chart = names[i].chart;
            curve = names[i].curve;
        }
    eval = before ? strncmp(tag, "train", before) != 0 && is_part(tag, before)
                  : curve && strcmp(curve, "eval") == 0;
    snprintf(p->chart, sizeof p->chart, "%s%.180s", run && eval ? "Eval " : "", chart);
    for (char *c = p->chart; *c && chart == key; c++)
        *c = *c == '_' ? ' ' : *c;
    if (run && eval)
        p->chart[5] = (char)(p->chart[5] == 'L' ? 'l' : p->chart[5]);
    else if (p->chart[0] >= 'a' && p->chart[0] <= 'z')
        p->chart[0] = (char)(p->chart[0] - 'a' + 'A');
    if (run && before && !is_part(tag, before))
        snprintf(p->curve, sizeof p->curve, "%.120s, %.*s", run, (int)(before < 60 ? before : 60),
                 tag);
    else if (run)
        snprintf(p->curve, sizeof p->curve, "%.190s", run);
    else if (before && (eval || strcmp(chart, "Loss") == 0 || !is_part(tag, before)))
        snprintf(p->curve, sizeof p->curve, "%.*s", (int)(before < 190 ? before : 190), tag);
    else
        snprintf(p->curve, sizeof p->curve, "%.190s", curve ? curve : p->chart);
    return true;
}

/* A number; NaN for what JSON has for one that is not finite: Python's words, or null. */
static bool number_of(double *v, const json_t *value)
{
    const char *s = json_string_value(value);

    *v = json_is_number(value) ? json_number_value(value) : NAN;
    return json_is_number(value) || json_is_null(value) ||
           (s && (strcmp(s, "NaN") == 0 || strcmp(s, "Infinity") == 0 ||
                  strcmp(s, "-Infinity") == 0));
}

int inspect_gather_rows(struct page_curves *curves, const char *run, const json_t *rows,
                        struct ckpt_err *err)
{
    json_t *row, *v;
    size_t i;
    int rc = 0;

    json_array_foreach ((json_t *)rows, i, row) {
        const json_t *step = json_object_get(row, "step");
        struct place p;
        const char *key;
        double y;

        if (!json_is_number(step))
            continue;
        if (json_object_get(row, "tokens_per_second"))  /* the same again */
            json_object_del(row, "seconds");
        if (json_object_get(row, "train_runtime"))      /* the share of the whole run */
            json_object_del(row, "communication_share");
        json_object_foreach (row, key, v)
            if (rc == 0 && number_of(&y, v) && place_of(&p, key, run))
                rc = page_curves_add(curves, p.chart, p.curve, "step", json_number_value(step), y,
                                     err);
    }
    return rc;
}

/* The curve of a device of a table by time; of run among others, or NULL. */
static void name_device(struct place *p, const char *tag, const char *run, bool only)
{
    int n = (int)strcspn(tag, "/");

    if (run && only)
        snprintf(p->curve, sizeof p->curve, "%.190s", run);
    else
        snprintf(p->curve, sizeof p->curve, "%.120s%sdevice %.*s", run ? run : "", run ? ", " : "",
                 n < 60 ? n : 60, tag);
}

int inspect_gather_log(struct page_curves *curves, const char *run, const struct inspect_want *w,
                       const struct run_log *log, struct ckpt_err *err)
{
    bool timed = strcmp(log->format, "nvidia-smi") == 0;
    double start = INFINITY;
    int rc = 0;

    for (size_t i = 0; timed && i < log->n; i++)
        if (log->series[i].point && log->series[i].count)
            start = fmin(start, log->series[i].point[0].time);
    for (size_t i = 0; rc == 0 && i < log->n; i++) {
        const struct log_series *s = &log->series[i];
        struct place p;

        if (!s->point || !inspect_wants(w, s->tag) || !place_of(&p, s->tag, run))
            continue;
        if (timed)
            name_device(&p, s->tag, run, json_object_size(log->info) < 2);
        for (uint64_t k = 0; rc == 0 && k < s->count; k++)
            rc = page_curves_add(curves, p.chart, p.curve, timed ? "seconds" : "step",
                                 timed ? s->point[k].time - start : (double)s->point[k].step,
                                 s->point[k].value, err);
    }
    return rc;
}

/* -- files ----------------------------------------------------------------------------------- */

/* A JSON file of the folder; *out NULL when it is not there. */
static int read_json(json_t **out, struct ckpt_dir *dir, const char *name, struct ckpt_err *err)
{
    struct ckpt_file *f;
    int rc;

    *out = NULL;
    if (!ckpt_dir_has(dir, name))
        return 0;
    if ((rc = ckpt_file_open_at(&f, dir, name, err)) != 0)
        return rc;
    rc = ckpt_json_read(out, f, CKPT_JSON_MAX_BYTES, CKPT_JSON_PYTHON, err);
    ckpt_file_close(f);
    return rc;
}

/* What the first row of a run says of where it ran; the newest run's stays. */
static void put_places(json_t *hardware, const json_t *rows)
{
    static const char *const keys[] = {"device", "ranks", "threads", "zero_stage", "offload"};
    json_t *row;
    size_t i;

    json_array_foreach ((json_t *)rows, i, row)
        for (size_t k = 0; json_object_get(row, "start_step") && k < sizeof keys / sizeof *keys;
             k++) {
            json_t *v = json_object_get(row, keys[k]);

            if (json_is_string(v) || json_is_integer(v))
                json_object_set(hardware, keys[k], v);
        }
}

static int metrics(json_t *hardware, struct page_curves *curves, const char *run,
                   struct ckpt_dir *dir, struct ckpt_err *err)
{
    json_t *rows = NULL;
    struct ckpt_file *f;
    int rc = ckpt_file_open_at(&f, dir, METRICS_LOG_NAME, err);

    if (rc)
        return rc;
    rc = metrics_log_read(&rows, f, err);
    put_places(hardware, rows);
    if (rc == 0)
        rc = inspect_gather_rows(curves, run, rows, err);
    json_decref(rows);
    ckpt_file_close(f);
    return rc;
}

static int losses(json_t *hardware, struct page_curves *curves, const char *run,
                  struct ckpt_dir *dir, struct ckpt_err *err)
{
    char name[INSPECT_STATE_NAME];
    json_t *state = NULL;
    int rc;

    if (ckpt_dir_has(dir, METRICS_LOG_NAME))
        return metrics(hardware, curves, run, dir, err);
    rc = inspect_newest_state(name, dir, err);
    if (rc == 0 && *name)
        rc = read_json(&state, dir, name, err);
    if (rc == 0)
        rc = inspect_gather_rows(curves, run, json_object_get(state, "log_history"), err);
    json_decref(state);
    return rc;
}

/* The devices' names and memory. */
static void put_devices(json_t *hardware, const struct run_log *log)
{
    const char *key;
    json_t *v;

    json_object_foreach (log->info, key, v)
        if (json_is_string(v) && json_object_size(hardware) < 20)
            json_object_set(hardware, key, v);
    for (size_t i = 0; i < log->n; i++)
        if (strstr(log->series[i].tag, "/memory.total") && log->series[i].count &&
            log->series[i].point)
            json_object_set_new(hardware, "memory_bytes",
                                json_real(log->series[i].point[0].value * 1048576));
}

/* memory.csv, and memory-<rank>.csv of further ranks. */
static int memory(json_t *hardware, struct page_curves *curves, const char *run,
                  struct ckpt_dir *dir, const char *name, struct ckpt_err *err)
{
    static const struct inspect_want all;
    struct run_log *log = NULL;
    struct ckpt_file *f;
    char label[100];
    int rc = ckpt_file_open_at(&f, dir, name, err);

    if (rc)
        return rc;
    rc = run_log_read(&log, f, err);
    snprintf(label, sizeof label, "rank %.*s", (int)strcspn(name + 7, "."), name + 7);
    if (rc == 0)
        rc = inspect_gather_log(curves, run ? run : name[6] == '-' ? label : NULL, &all, log, err);
    if (rc == 0)
        put_devices(hardware, log);
    run_log_free(log);
    ckpt_file_close(f);
    return rc ? ckpt_err_in(err, "%s", name) : 0;
}

static int memories(json_t *hardware, struct page_curves *curves, const char *run,
                    struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err);

    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entry[i].is_file && (strcmp(entry[i].name, "memory.csv") == 0 ||
                                 (!run && fnmatch("memory-[0-9]*.csv", entry[i].name, 0) == 0)))
            rc = memory(hardware, curves, run, dir, entry[i].name, err);
    ckpt_arena_release(&a);
    return rc;
}

int inspect_gather_curves(json_t *hardware, struct page_curves *curves, const char *run,
                          struct ckpt_dir *dir, struct ckpt_err *err)
{
    int rc = losses(hardware, curves, run, dir, err);

    return rc ? rc : memories(hardware, curves, run, dir, err);
}

/* -- checkpoints ----------------------------------------------------------------------------- */

/* Bytes of the files in a folder and in those in it. */
static int bytes_of(uint64_t *bytes, struct ckpt_dir *dir, const char *name, int depth,
                    struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_dir *sub;
    struct ckpt_entry *entry;
    size_t n = 0;
    int rc = ckpt_dir_open_at(&sub, dir, name, err);

    if (rc)
        return rc;
    rc = ckpt_dir_list(sub, &a, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (entry[i].is_dir && depth > 0)
            rc = bytes_of(bytes, sub, entry[i].name, depth - 1, err);
        else if (entry[i].is_file)
            *bytes += entry[i].size;
    ckpt_arena_release(&a);
    ckpt_dir_close(sub);
    return rc;
}

/* The value of the newest point up to x, of the last `within` steps; NaN when there is none. */
static double value_at(const struct page_curves *curves, const char *name, double x)
{
    const struct curves_chart *chart = page_curves_find(curves, "Loss");
    double y = NAN;

    for (size_t i = 0; chart && i < chart->n; i++)
        for (size_t k = 0; k < chart->curve[i].n && strcmp(chart->curve[i].name, name) == 0; k++)
            if (chart->curve[i].point[k].x <= x)
                y = chart->curve[i].point[k].y;
    return y;
}

struct saved {
    const char        *name;
    unsigned long long step;
};

static int by_step(const void *a, const void *b)
{
    const struct saved *p = a, *q = b;

    return (p->step > q->step) - (p->step < q->step);
}

static int put_saved(struct out *o, const struct saved *saved, size_t n, struct ckpt_dir *dir,
                     const struct page_curves *curves, const char *best, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"checkpoint", NULL, OUT_LEFT}, {"step", NULL, OUT_RIGHT}, {"train_loss", NULL, OUT_RIGHT},
        {"eval_loss", NULL, OUT_RIGHT}, {"bytes", NULL, OUT_RIGHT}, {"best", NULL, OUT_LEFT},
    };
    const char *slash = best ? strrchr(best, '/') : NULL;
    int rc = 0;

    out_table(o, "checkpoints", columns, 6);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        uint64_t bytes = 0;

        rc = bytes_of(&bytes, dir, saved[i].name, 1, err);
        out_cell_str(o, saved[i].name);
        out_cell_int(o, (int64_t)saved[i].step);
        out_cell_known(o, value_at(curves, "train", (double)saved[i].step));
        out_cell_known(o, value_at(curves, "eval", (double)saved[i].step));
        out_cell_bytes(o, bytes);
        out_cell_str(o, best && strcmp(slash ? slash + 1 : best, saved[i].name) == 0 ? "best" : "");
    }
    out_table_end(o);
    return rc;
}

/* The step in a checkpoint whose name counts saves; -1: its state is not there. */
static int64_t step_of(struct ckpt_dir *dir, const char *name)
{
    struct ckpt_err ignored = {0};
    json_t *state = NULL;
    char file[4200];
    int64_t step = -1;

    snprintf(file, sizeof file, "%.4000s/trainer_state.json", name);
    if (read_json(&state, dir, file, &ignored) == 0 &&
        json_is_integer(json_object_get(state, "global_step")))
        step = json_integer_value(json_object_get(state, "global_step"));
    json_decref(state);
    return step;
}

static int checkpoints(struct out *o, struct ckpt_dir *dir, const struct page_curves *curves,
                       const char *best, struct ckpt_err *err)
{
    static const char counted[] = "checkpoint_";
    struct ckpt_arena a = {0};
    struct saved *saved = NULL;
    struct ckpt_entry *entry;
    size_t n = 0, n_saved = 0;
    int rc = ckpt_dir_list(dir, &a, &entry, &n, err);

    if (rc == 0 && !(saved = ckpt_alloc(n + 1, sizeof *saved)))
        rc = ckpt_nomem(err, n * sizeof *saved);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        int64_t step = inspect_saved_number(&entry[i]);

        if (step >= 0 && strncmp(entry[i].name, counted, sizeof counted - 1) == 0)
            step = step_of(dir, entry[i].name);
        if (step >= 0)
            saved[n_saved++] = (struct saved){entry[i].name, (unsigned long long)step};
    }
    if (n_saved)
        qsort(saved, n_saved, sizeof *saved, by_step);
    if (rc == 0 && n_saved)
        rc = put_saved(o, saved, n_saved, dir, curves, best, err);
    ckpt_free(saved);
    ckpt_arena_release(&a);
    return rc;
}

/* -- samples --------------------------------------------------------------------------------- */

#define SAMPLE_FILE_BYTES ((uint64_t)64 << 10)  /* read of a file */
#define SAMPLES           20

/* Texts that the model wrote: a line each, or an object a line. */
static int samples(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err)
{
    static const char *const files[] = {"samples.jsonl", "generated_predictions.jsonl",
                                        "predictions.jsonl", "generated_predictions.txt"};
    struct ckpt_file *f = NULL;
    json_t *list = json_array();
    char *text = ckpt_alloc(SAMPLE_FILE_BYTES + 1, 1), *line, *end;
    size_t n = 0;
    int rc = text && list ? 0 : ckpt_nomem(err, SAMPLE_FILE_BYTES);

    for (size_t i = 0; rc == 0 && !f && i < sizeof files / sizeof files[0]; i++)
        if (ckpt_dir_has(dir, files[i]))
            rc = ckpt_file_open_at(&f, dir, files[i], err);
    if (rc == 0 && f) {
        n = ckpt_file_size(f) < SAMPLE_FILE_BYTES ? (size_t)ckpt_file_size(f) : SAMPLE_FILE_BYTES;
        rc = ckpt_file_read_at(f, text, n, 0, err);
    }
    for (line = text; rc == 0 && line < text + n && json_array_size(list) < SAMPLES;
         line = end + 1) {
        struct ckpt_err ignored = {0};
        json_t *row = NULL;

        end = memchr(line, '\n', (size_t)(text + n - line));
        end = end ? end : text + n;
        *end = '\0';
        if (end == line)
            continue;
        if (ckpt_json_parse(&row, line, (size_t)(end - line), CKPT_JSON_PYTHON, &ignored) ||
            !json_is_object(row)) {
            json_decref(row);
            row = json_pack("{s:s}", "text", line);     /* NULL when it is not UTF-8 */
        }
        if (row)
            json_array_append_new(list, row);
    }
    if (rc == 0 && json_array_size(list))
        out_json(o, "samples", NULL, list);
    json_decref(list);
    ckpt_free(text);
    ckpt_file_close(f);
    return rc;
}

/* -- a folder -------------------------------------------------------------------------------- */

/* A manifest without its list of files, which has a row each among the parts. */
static int manifest(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err)
{
    json_t *doc;
    int rc = read_json(&doc, dir, "MANIFEST.json", err);

    if (rc == 0 && json_is_object(doc)) {
        json_object_del(doc, "files");
        out_json(o, "manifest", NULL, doc);
    }
    json_decref(doc);
    return rc;
}

/* Fields of training_args.bin; another program's file of that name is one of the parts only. */
static int arguments(struct out *o, struct ckpt_dir *dir, struct ckpt_err *err)
{
    struct ckpt_err ignored = {0};
    struct ckpt_file *f;
    json_t *fields;
    int rc;

    if (!ckpt_dir_has(dir, "training_args.bin"))
        return 0;
    rc = ckpt_file_open_at(&f, dir, "training_args.bin", err);
    if (rc || inspect_arguments(&fields, f, &ignored) || !fields)       /* takes it */
        return rc;
    inspect_arguments_put(o, fields);
    json_decref(fields);
    return 0;
}

int inspect_gather_run(struct out *o, struct page_curves *curves, struct ckpt_dir *dir,
                       const char *best, struct ckpt_err *err)
{
    json_t *results = NULL, *hardware = json_object();
    int rc = hardware ? inspect_gather_curves(hardware, curves, NULL, dir, err)
                      : ckpt_nomem(err, 64);

    if (rc == 0)
        rc = read_json(&results, dir, "all_results.json", err);
    if (rc == 0 && json_is_object(results))
        out_json(o, "results", NULL, results);
    if (rc == 0 && json_object_size(hardware))
        out_json(o, "hardware", NULL, hardware);
    if (rc == 0)
        rc = manifest(o, dir, err);
    if (rc == 0)
        rc = arguments(o, dir, err);
    if (rc == 0)
        rc = checkpoints(o, dir, curves, best, err);
    if (rc == 0)
        rc = samples(o, dir, err);
    json_decref(results);
    json_decref(hardware);
    return rc;
}

int inspect_gather_dir(struct out *o, const struct inspect_want *w, struct ckpt_dir *dir,
                       struct ckpt_err *err)
{
    char name[INSPECT_STATE_NAME];
    json_t *state = NULL;
    int rc = inspect_newest_state(name, dir, err);

    if (rc == 0 && !*name && !ckpt_dir_has(dir, METRICS_LOG_NAME))
        return 1;
    if (rc == 0 && *name)
        rc = read_json(&state, dir, name, err);
    if (rc == 0 && state)
        inspect_run_summary(o, state, false);
    if (rc == 0)
        rc = inspect_gather_run(o, w->curves, dir, inspect_best_checkpoint(state), err);
    if (rc == 0)
        rc = inspect_run(o, dir, err);
    json_decref(state);
    return rc;
}
