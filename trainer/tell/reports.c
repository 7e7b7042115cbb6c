/* reports - see reports.h. */
#include "trainer/tell/reports.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/families/arch.h"
#include "formats/logs/tfevents_out.h"
#include "formats/logs/wandb_out.h"
#include "libckpt/base/json.h"
#include "libckpt/io/path.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/tell/artifacts.h"

#define USAGE_EVERY 10.0        /* seconds */
#define MAX_NUMBERS 32          /* of a row */
#define STEP_METRIC "train/global_step"

struct reports {
    const struct settings *s;
    struct tfevents_out   *events;
    struct wandb_out      *wandb;
    struct log_file        csv;
    int64_t                step;        /* of the newest row */
    bool                   told[3];     /* of each kind: a failure was told */
    double                 used_at;     /* when figures of the machine were last taken */
};

enum kind { EVENTS, WANDB, CSV };

static const char *const words[] = {"tensorboard", "wandb", "csv"};

/* A variable that is set to something; else NULL. */
static const char *env(const char *name)
{
    const char *v = getenv(name);

    return v && *v ? v : NULL;
}

/* A failure ends no run; the first of a kind is told. */
static void lost(struct reports *r, enum kind kind, int rc, const struct ckpt_err *err)
{
    if (rc == 0 || r->told[kind])
        return;
    r->told[kind] = true;
    ckpt_log(CKPT_LOG_WARNING, "report to %s: %s: training goes on, this is said once",
             words[kind], err->text);
}

/* -- TensorBoard ------------------------------------------------------------------------------ */

/* The newest folder in `runs`, of the run that is continued; false when there is none. */
static bool newest_in(char path[4200], const char *runs)
{
    char best[256] = "";
    struct timespec at = {0};
    struct dirent *e;
    DIR *d = opendir(runs);

    while (d && (e = readdir(d)) != NULL) {
        struct stat st;

        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
            !S_ISDIR(st.st_mode))
            continue;
        if (!*best || st.st_mtim.tv_sec > at.tv_sec ||
            (st.st_mtim.tv_sec == at.tv_sec && st.st_mtim.tv_nsec > at.tv_nsec)) {
            snprintf(best, sizeof best, "%s", e->d_name);
            at = st.st_mtim;
        }
    }
    if (d)
        closedir(d);
    return *best && (size_t)snprintf(path, 4200, "%s/%s", runs, best) < 4200;
}

/* logging_dir, else as HF Trainer names it; a run that goes on goes on in the same folder. */
/* The folder that the user names, or NULL. */
static const char *events_given(const struct settings *s)
{
    return s->logging_dir ? s->logging_dir : env("TENSORBOARD_LOGGING_DIR");
}

static void events_dir(char path[4200], const struct reports_start *start)
{
    const char *given = events_given(start->settings);
    char runs[4120], host[256], when[40];
    time_t now = time(NULL);
    struct tm local;

    if (given) {
        snprintf(path, 4200, "%s", given);
        return;
    }
    snprintf(runs, sizeof runs, "%s/runs", start->settings->output_dir);
    if (start->continues && newest_in(path, runs))
        return;
    if (gethostname(host, sizeof host - 1) || strchr(host, '/'))
        snprintf(host, sizeof host, "localhost");
    host[sizeof host - 1] = '\0';
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%b%d_%H-%M-%S", &local);
    snprintf(path, 4200, "%.3900s/%s_%s", runs, when, host);
}

/* "NAME VALUE" of all settings as an object; numbers and truth as such. */
static json_t *arguments(const struct settings *s)
{
    json_t *o = json_object();

    for (size_t i = 0; o && i < s->n_told; i++) {
        const char *name = s->told[i], *value = strchr(name, ' ');
        char *end = NULL, key[100];
        double number = value ? strtod(value + 1, &end) : 0;
        json_t *v;

        if (!value || (size_t)(value - name) >= sizeof key)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)(value - name), name);
        for (char *p = key; *p; p++)
            *p = *p == '-' ? '_' : *p;
        value++;
        v = strcmp(value, "on") == 0    ? json_true()
            : strcmp(value, "off") == 0 ? json_false()
            : *value && end && !*end && isfinite(number)
                ? (number == floor(number) && fabs(number) < 1e15
                       ? json_integer((json_int_t)number) : json_real(number))
                : json_string(value);
        if (!v)
            v = json_null();            /* not UTF-8 */
        if (json_object_set_new(o, key, v)) {
            json_decref(o);
            o = NULL;
        }
    }
    return o;
}

static int put_json_text(struct tfevents_out *o, const char *tag, const json_t *v,
                         struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = v ? 0 : ckpt_nomem(err, 64);

    ckpt_buf_init(&b, (size_t)1 << 22);
    if (rc == 0)
        rc = ckpt_json_write(&b, v, 2, true, err);
    if (rc == 0)
        rc = ckpt_buf_str(&b) ? tfevents_out_text(o, 0, tag, (const char *)b.data, err)
                              : ckpt_nomem(err, b.len);
    ckpt_buf_release(&b);
    return rc;
}

static int open_events(struct reports *r, const struct reports_start *start, struct ckpt_err *err)
{
    char path[4200];
    json_t *args;
    int rc;

    events_dir(path, start);
    if ((rc = tfevents_out_open(&r->events, path, err)) != 0)
        return rc;
    /* Steps of an earlier run that this one does again, or that it has nothing to do with. */
    if ((rc = tfevents_out_start(r->events, start->continues ? start->step + 1 : 0, err)) != 0)
        return rc;
    args = arguments(start->settings);
    rc = put_json_text(r->events, "args/text_summary", args, err);
    json_decref(args);
    return rc ? rc : put_json_text(r->events, "model_config/text_summary",
                                   start->session->arch->config, err);
}

/* -- W&B -------------------------------------------------------------------------------------- */

/* Settings and the model's configuration in one object, as HF Trainer's callback has them. */
static json_t *wandb_config(const struct reports_start *start)
{
    json_t *o = arguments(start->settings), *v;
    const char *key;

    json_object_foreach (start->session->arch->config, key, v)
        if (o && !json_object_get(o, key) && json_object_set(o, key, v))
            break;
    if (o && json_object_set_new(o, "_wandb", json_object())) {
        json_decref(o);
        o = NULL;
    }
    return o;
}

/* An id as W&B draws them, eight letters and digits, from the run's own. */
static void wandb_id(char id[9], const char *hex)
{
    unsigned long long n = strtoull(hex, NULL, 16);

    for (int i = 0; i < 8; i++, n /= 36)
        id[i] = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
    id[8] = '\0';
}

static int open_wandb(struct reports *r, const struct reports_start *start, struct ckpt_err *err)
{
    const struct settings *s = start->settings;
    const struct session *in = start->session;
    const char *mode = env("WANDB_MODE"), *off = env("WANDB_DISABLED"), *id = env("WANDB_RUN_ID");
    const char *project = env("WANDB_PROJECT"), *dir = env("WANDB_DIR");
    char drawn[9];
    json_t *config;
    int rc;

    if ((mode && strcmp(mode, "disabled") == 0) || (off && strcmp(off, "true") == 0)) {
        ckpt_log(CKPT_LOG_NOTE, "report to wandb: switched off by the environment");
        return 0;
    }
    wandb_id(drawn, start->id);
    config = wandb_config(start);
    if (!config)
        return ckpt_nomem(err, 64);
    const struct wandb_out_run run = {
        .dir = dir ? dir : s->output_dir, .id = id ? id : drawn,
        .project = project ? project : "huggingface", .entity = env("WANDB_ENTITY"),
        .name = s->run_name ? s->run_name : env("WANDB_NAME"), .group = env("WANDB_RUN_GROUP"),
        .job_type = env("WANDB_JOB_TYPE"), .notes = env("WANDB_NOTES"), .tags = env("WANDB_TAGS"),
        .program = "ckpt-train", .gpu = in->dev->discrete ? in->dev->label : NULL,
        .n_gpu = in->dev->discrete ? 1 : 0, .n_cpu = (unsigned)sysconf(_SC_NPROCESSORS_ONLN),
        .memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE),
        .config = config, .step_metric = STEP_METRIC,
    };
    rc = wandb_out_open(&r->wandb, &run, err);
    json_decref(config);
    if (rc == 0)
        ckpt_log(CKPT_LOG_NOTE, "W&B: nothing is sent; `wandb sync %s` does so",
                 wandb_out_dir(r->wandb));
    return rc;
}

/* -- CSV -------------------------------------------------------------------------------------- */

static const char *const columns[] = {
    "time", "run", "step", "epoch", "loss", "grad_norm", "learning_rate", "tokens_per_second",
    "seconds", "num_input_tokens_seen", "eval_loss", "eval_runtime", "eval_samples_per_second",
    "train_loss", "train_runtime", "train_steps_per_second", "total_flos",
};
#define N_COLUMNS (sizeof columns / sizeof columns[0])

static int open_csv(struct reports *r, const struct reports_start *start, struct ckpt_err *err)
{
    char path[4200], line[600];
    size_t n = 0;
    int rc;

    snprintf(path, sizeof path, "%.4000s/metrics.csv", start->settings->output_dir);
    if ((rc = log_file_open(&r->csv, path, false, err)) != 0 || r->csv.size > 0)
        return rc;
    for (size_t i = 0; i < N_COLUMNS; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "%s%s", columns[i],
                              i + 1 < N_COLUMNS ? "," : "\n");
    return log_file_put(&r->csv, line, n, err);
}

/* Values that a row lacks stay empty, and so do numbers that are not finite. */
static int put_csv(struct reports *r, const json_t *row, struct ckpt_err *err)
{
    char line[1024];
    size_t n = 0;

    for (size_t i = 0; i < N_COLUMNS; i++) {
        const json_t *v = json_object_get(row, columns[i]);

        n += (size_t)snprintf(line + n, sizeof line - n, "%s", i ? "," : "");
        if (json_is_integer(v))
            n += (size_t)snprintf(line + n, sizeof line - n, "%lld",
                                  (long long)json_integer_value(v));
        else if (json_is_real(v))
            n += (size_t)snprintf(line + n, sizeof line - n, "%.*g", i ? 9 : 14,
                                  json_real_value(v));
        else if (json_is_string(v))
            n += (size_t)snprintf(line + n, sizeof line - n, "%s", json_string_value(v));
    }
    line[n++] = '\n';
    return log_file_put(&r->csv, line, n, err);
}

/* -- all -------------------------------------------------------------------------------------- */

int reports_ready(const struct settings *s, struct ckpt_err *err)
{
    const char *given = events_given(s);
    char path[4200], first[4200];
    int rc = 0;

    if (given && settings_reports(s, words[0]))
        rc = ckpt_path_dirs_ready(first, sizeof first, given, err);
    snprintf(path, sizeof path, "%.4000s/metrics.csv", s->output_dir);
    return rc || !settings_reports(s, words[2]) ? rc : log_file_ready(path, err);
}

int reports_open(struct reports **out, const struct reports_start *start, struct ckpt_err *err)
{
    static int (*const opens[])(struct reports *, const struct reports_start *,
                                struct ckpt_err *) = {open_events, open_wandb, open_csv};
    struct reports *r = ckpt_alloc(1, sizeof *r);
    int rc = 0;

    *out = NULL;
    if (!r)
        return ckpt_nomem(err, sizeof *r);
    r->s = start->settings;
    r->step = start->step;
    r->csv.fd = -1;
    for (size_t i = 0; rc == 0 && i < sizeof opens / sizeof opens[0]; i++) {
        if (!settings_reports(r->s, words[i]))
            continue;
        rc = opens[i](r, start, err);
        if (rc == CKPT_EIO) {           /* a disk that is full now may have space later */
            lost(r, (enum kind)i, rc, err);
            rc = 0;
        }
    }
    if (rc)
        reports_close(r, ckpt_err_status(rc));
    else
        *out = r;
    return rc;
}

/* HF Trainer's rewrite_logs. */
static size_t numbers(struct log_number v[MAX_NUMBERS], char tags[MAX_NUMBERS][64],
                      const json_t *row)
{
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach ((json_t *)(uintptr_t)row, key, value) {
        bool eval = strncmp(key, "eval_", 5) == 0;

        if (n == MAX_NUMBERS || strcmp(key, "step") == 0 || strcmp(key, "time") == 0 ||
            (!json_is_number(value) && !json_is_null(value)))
            continue;
        snprintf(tags[n], sizeof tags[n], "%s/%s", eval ? "eval" : "train", key + (eval ? 5 : 0));
        v[n] = (struct log_number){tags[n], json_is_number(value) ? json_number_value(value)
                                                                  : (double)NAN};
        n++;
    }
    return n;
}

/* The closing row is the run's summary under its own names, as HF Trainer's callback has it. */
static int put_wandb(struct reports *r, struct log_number *v, size_t n, bool closing,
                     struct ckpt_err *err)
{
    if (!closing) {
        v[n] = (struct log_number){STEP_METRIC, (double)r->step};
        return wandb_out_history(r->wandb, v, n + 1, err);
    }
    for (size_t i = 0; i < n; i++)
        v[i].tag += strlen("train/");
    return wandb_out_summary(r->wandb, v, n, err);
}

void reports_row(struct reports *r, const json_t *row, bool closing)
{
    struct log_number v[MAX_NUMBERS + 1];
    char tags[MAX_NUMBERS][64];
    struct ckpt_err err = {0};
    size_t n;

    if (!r)
        return;
    n = numbers(v, tags, row);
    r->step = json_integer_value(json_object_get(row, "step"));
    if (r->events)
        lost(r, EVENTS, tfevents_out_scalars(r->events, r->step, v, n, &err), &err);
    if (r->csv.fd >= 0)
        lost(r, CSV, put_csv(r, row, &err), &err);
    if (r->wandb)
        lost(r, WANDB, put_wandb(r, v, n, closing, &err), &err);
}

void reports_line(struct reports *r, const char *line)
{
    struct ckpt_err err = {0};

    if (r && r->wandb)
        lost(r, WANDB, wandb_out_line(r->wandb, line, &err), &err);
}

void reports_histogram(struct reports *r, int64_t step, const char *tag, const struct histogram *h)
{
    struct ckpt_err err = {0};

    if (r && r->events)
        lost(r, EVENTS, tfevents_out_histogram(r->events, step, tag, h, &err), &err);
    if (r && r->wandb)
        lost(r, WANDB, wandb_out_histogram(r->wandb, tag, h, &err), &err);
}

void reports_usage(struct reports *r, struct usage *u)
{
    double t = clock_now();
    struct log_number v[7];
    struct ckpt_err err = {0};
    struct usage_now now;
    size_t n = 0;

    if (!r || !r->wandb || (r->used_at > 0 && t - r->used_at < USAGE_EVERY))
        return;
    r->used_at = t;
    usage_sample(u, &now);
    v[n++] = (struct log_number){"cpu", now.cpu};
    v[n++] = (struct log_number){"proc.memory.rssMB", now.resident};
    v[n++] = (struct log_number){"proc.memory.percent", now.host > 0
                                                            ? 100 * now.resident / now.host : 0};
    if (now.gpu.total > 0) {
        v[n++] = (struct log_number){"gpu.0.gpu", (double)now.gpu.load};
        v[n++] = (struct log_number){"gpu.0.memoryAllocatedBytes", (double)now.gpu.used};
        v[n++] = (struct log_number){"gpu.0.memoryAllocated",
                                     100 * (double)now.gpu.used / (double)now.gpu.total};
        v[n++] = (struct log_number){"gpu.0.powerWatts", now.gpu.watt};
    }
    lost(r, WANDB, wandb_out_stats(r->wandb, v, n, &err), &err);
}

void reports_close(struct reports *r, int status)
{
    struct ckpt_err err = {0};

    if (!r)
        return;
    tfevents_out_close(r->events);
    log_file_close(&r->csv);
    if (r->wandb && (status == 0 || status == 75))
        lost(r, WANDB, artifacts_put(r->wandb, r->s->output_dir, r->s->run_name ? r->s->run_name
                                     : wandb_out_id(r->wandb), &err), &err);
    if (r->wandb)
        lost(r, WANDB, wandb_out_end(r->wandb, status, &err), &err);
    ckpt_free(r);
}
