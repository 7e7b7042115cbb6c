/* run/trial - see run/trial.h. */
#include "trainer/run/trial.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "formats/logs/log_file.h"
#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/io/path.h"
#include "trainer/checkpoint/naming.h"
#include "trainer/comm/report.h"
#include "trainer/run/dir.h"

#define DATE_BYTES 19                   /* 2026-01-31_23-59-59, the end of a trial's name */
#define LINE_BYTES ((size_t)1 << 20)

/* -- which one -------------------------------------------------------------------------------- */

static void new_name(char name[256])
{
    uint32_t id = 0;
    struct tm at;
    time_t now = time(NULL);
    char date[DATE_BYTES + 1];

    if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
        id = (uint32_t)getpid();        /* the date tells trials apart, but for those of a second */
    localtime_r(&now, &at);
    strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", &at);
    snprintf(name, 256, NAMING_TRIAL "%05x_00000_0_%s", (unsigned)(id & 0xfffff), date);
}

/* Whether trial a is newer than b: one with a checkpoint before one without, then by dates. */
static bool is_newer(const char *a, bool a_saved, const char *b, bool b_saved)
{
    size_t la = strlen(a), lb = strlen(b);
    int by = strcmp(a + (la > DATE_BYTES ? la - DATE_BYTES : 0),
                    b + (lb > DATE_BYTES ? lb - DATE_BYTES : 0));

    return a_saved != b_saved ? a_saved : by != 0 ? by > 0 : strcmp(a, b) > 0;
}

/* The newest trial of the output; "": there is none. */
static int find_newest(char name[256], const char *output_dir, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct ckpt_entry *entry = NULL;
    struct ckpt_dir *dir = NULL;
    bool saved = false;
    size_t n = 0;
    int rc;

    *name = '\0';
    if (!ckpt_path_is_dir(output_dir))
        return 0;
    rc = ckpt_dir_open(&dir, output_dir, 0, err);
    if (rc == 0)
        rc = ckpt_dir_list(dir, &a, &entry, &n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char path[4096];
        bool has;

        if (!entry[i].is_dir || !naming_is_trial(entry[i].name) || strlen(entry[i].name) > 255)
            continue;
        snprintf(path, sizeof path, "%s/%s", output_dir, entry[i].name);
        has = run_dir_is_run(path);
        if (*name && !is_newer(entry[i].name, has, name, saved))
            continue;
        saved = has;
        snprintf(name, 256, "%s", entry[i].name);
    }
    ckpt_dir_close(dir);
    ckpt_arena_release(&a);
    return rc;
}

/* The trial of the output that a named checkpoint, or trial, is; "": of another folder. */
static void find_named(char name[256], const char *output_dir, const char *from)
{
    char above[4096];
    size_t n = (size_t)snprintf(above, sizeof above, "%s", from);

    *name = '\0';
    if (naming_is_trial(from) && run_dir_holds(output_dir, from)) {
        naming_last(name, from);
        return;
    }
    while (n > 0 && n < sizeof above && above[n - 1] == '/')
        n--;
    while (n > 0 && n < sizeof above && above[n - 1] != '/')
        n--;
    above[n < sizeof above ? n : 0] = '\0';
    if (naming_is_trial(above) && run_dir_holds(output_dir, above))
        naming_last(name, above);
}

static bool is_one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcasecmp(word, a) == 0 || strcasecmp(word, b) == 0 || strcasecmp(word, c) == 0;
}

static int choose(char name[256], const struct settings *s, struct ckpt_err *err)
{
    const char *from = s->resume_from_checkpoint;
    int rc = 0;

    *name = '\0';
    if (report_saved_before() >= 0 || (from && is_one_of(from, "latest", "auto", "true")))
        rc = find_newest(name, s->output_dir, err);
    else if (from)
        find_named(name, s->output_dir, from);
    if (rc == 0 && !*name)
        new_name(name);
    return rc;
}

int trial_choose(char path[4096], const struct settings *s, struct comm *c, struct ckpt_err *err)
{
    char name[256] = "";
    int rc = comm_agree(c, c->rank == 0 ? choose(name, s, err) : 0, err);

    if (rc)
        return rc;
    comm_broadcast(c, name, (int64_t)sizeof name, CKPT_U8, 0);
    if ((rc = comm_error(c, err)) != 0)
        return rc;
    if (snprintf(path, 4096, "%s/%s", s->output_dir, name) > 3800)
        rc = ckpt_fail(err, CKPT_ECONFIG, "`output_dir`: %zu bytes are too many for a path",
                       strlen(s->output_dir));
    return comm_agree(c, rc, err);
}

/* -- what it holds ---------------------------------------------------------------------------- */

/* A value as it is written in a run file: a number, a flag, or text. */
static json_t *value_of(const char *text)
{
    struct ckpt_err ignored = {0};
    json_t *list = NULL, *v = NULL;
    char line[64];

    if ((size_t)snprintf(line, sizeof line, "[%s]", text) < sizeof line &&
        ckpt_json_parse(&list, line, strlen(line), CKPT_JSON_STRICT, &ignored) == 0 &&
        json_array_size(list) == 1)
        v = json_incref(json_array_get(list, 0));
    json_decref(list);
    return v ? v : json_string(text);
}

int trial_begin(const struct settings *s, struct ckpt_err *err)
{
    json_t *config = json_object(), *all = NULL;
    struct ckpt_buf b;
    struct log_file f = {.fd = -1};
    char path[4200];
    int rc = config ? 0 : ckpt_nomem(err, sizeof *config);

    for (size_t i = 0; rc == 0 && i < s->n_told; i++) {
        const char *blank = strchr(s->told[i], ' ');
        char key[128];

        if (!blank)
            continue;
        snprintf(key, sizeof key, "%.*s", (int)(blank - s->told[i]), s->told[i]);
        if (json_object_set_new(config, key, value_of(blank + 1)))
            rc = ckpt_nomem(err, sizeof *config);
    }
    ckpt_buf_init(&b, LINE_BYTES);
    if (rc == 0 && !(all = json_pack("{s:O}", "train_loop_config", config)))
        rc = ckpt_nomem(err, sizeof *all);
    if (rc == 0)
        rc = ckpt_json_write(&b, all, 4, false, err);
    snprintf(path, sizeof path, "%s/params.json", s->output_dir);
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? log_file_replace(path, b.data, b.len, err) : ckpt_nomem(err, b.len);
    snprintf(path, sizeof path, "%s/result.json", s->output_dir);
    if (rc == 0)                        /* by this file trials are told from other folders */
        rc = log_file_open(&f, path, false, err);
    log_file_close(&f);
    ckpt_buf_release(&b);
    json_decref(all);
    json_decref(config);
    return rc;
}

/* The newest figures of the log, by name. */
static void put_newest(json_t *row, const json_t *log)
{
    static const char *const keys[] = {"loss", "grad_norm", "learning_rate", "eval_loss",
                                       "eval_runtime", "eval_samples_per_second", "epoch"};

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        for (size_t i = json_array_size(log); i-- > 0;) {
            json_t *v = json_object_get(json_array_get(log, i), keys[k]);

            if (v) {
                json_object_set(row, keys[k], v);
                break;
            }
        }
}

void trial_saved(const struct settings *s, const struct run_state *state, const char *checkpoint,
                 int64_t step, double seconds)
{
    char path[4200], name[256], trial[256], date[DATE_BYTES + 1];
    struct log_file f = {.fd = -1};
    struct ckpt_err err = {0};
    time_t now = time(NULL);
    struct ckpt_buf b;
    struct tm at;
    json_t *row;
    int rc;

    naming_last(name, checkpoint);
    naming_last(trial, s->output_dir);
    if (strlen(trial) > sizeof NAMING_TRIAL + 10)       /* "4f2b1_00000" is its id */
        trial[sizeof NAMING_TRIAL + 10] = '\0';
    localtime_r(&now, &at);
    strftime(date, sizeof date, "%Y-%m-%d_%H-%M-%S", &at);
    row = json_pack("{s:s,s:b,s:b,s:I,s:I,s:s,s:s,s:I,s:f,s:i}", "checkpoint_dir_name", name,
                    "should_checkpoint", 1, "done", step >= state->max_steps, "step",
                    (json_int_t)step, "training_iteration",
                    (json_int_t)ckpt_path_number(name, "checkpoint_") + 1, "trial_id",
                    trial + sizeof NAMING_TRIAL - 1, "date", date, "timestamp", (json_int_t)now,
                    "time_total_s", seconds, "pid", (int)getpid());
    if (row)
        put_newest(row, state->log_history);
    ckpt_buf_init(&b, LINE_BYTES);
    rc = row ? ckpt_json_write(&b, row, 0, false, &err) : ckpt_nomem(&err, sizeof *row);
    ckpt_buf_put_u8(&b, '\n');
    snprintf(path, sizeof path, "%s/result.json", s->output_dir);
    if (rc == 0)
        rc = ckpt_buf_ok(&b) ? log_file_open(&f, path, false, &err) : ckpt_nomem(&err, b.len);
    if (rc == 0)
        rc = log_file_put(&f, b.data, b.len, &err);
    if (rc)
        ckpt_log(CKPT_LOG_WARNING, "%s: training goes on, %s stands there nevertheless", err.text,
                 name);
    log_file_close(&f);
    ckpt_buf_release(&b);
    json_decref(row);
}
