/* metrics - see metrics.h. */
#include "trainer/tell/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "formats/logs/log_file.h"
#include "formats/logs/metrics_log.h"
#include "libckpt/base/json.h"
#include "libckpt/ckpt.h"
#include "libckpt/digest.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/tell/line.h"
#include "trainer/tell/reports.h"

#define DIVERGED     10.0       /* times its first value is a loss that learns nothing any more */
#define DEVICE_NAME  128
#define HEADER_EVERY 40         /* lines */
#define MEMORY_EVERY 1.0        /* seconds */

/* Since the last log line, or since the run was resumed; losses are in its state. */
struct window {
    double  start;
    double  stepped, communication;     /* seconds of its steps, and of them in collectives */
    int64_t tokens;
};

struct metrics {
    struct metrics_opts o;
    bool             speak;             /* rank 0 */
    struct log_file  file;
    bool             told;              /* that metrics.jsonl cannot be written */
    char             id[17];
    struct reports  *reports;
    struct usage     usage;
    long             lines;
    struct window    w;
    double           stepped, communication;    /* of all steps */
    int64_t          tokens;            /* of all steps */
    double           first_loss, last_loss;     /* logged; NaN: none yet */
    double           rate, rate_at;             /* tokens a second, smoothed; when it was taken */
    double           memory_at;
    struct run_event now;
};

/* -- rows ------------------------------------------------------------------------------------- */

json_t *metrics_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

/* A number for people: fixed, with so many decimals, or in powers of ten where that would not fit
 * into a column.  Returns text. */
static char *readable(char text[32], double v, int decimals)
{
    snprintf(text, 32, fabs(v) < 1e5 ? "%.*f" : "%.*g", decimals, v);
    return text;
}

/* Seconds since 1970, whole milliseconds. */
static json_t *time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return json_real((double)t.tv_sec + 1e-3 * (double)(t.tv_nsec / 1000000));
}

/* One line in one write, so that a reader never sees half of one.  Adds time and run to row. */
static int append(struct metrics *m, json_t *row, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    if (json_object_set_new(row, "run", json_string(m->id)) ||
        json_object_set_new(row, "time", time_now()))
        return ckpt_nomem(err, sizeof *row);
    ckpt_buf_init(&b, (size_t)1 << 20);
    rc = ckpt_json_write(&b, row, 0, false, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = log_file_put(&m->file, b.data, b.len, err);
    ckpt_buf_release(&b);
    if (rc != CKPT_EIO)
        return rc;
    if (!m->told)
        ckpt_log(CKPT_LOG_WARNING, "%s: training goes on, this is said once", err->text);
    m->told = true;
    return 0;
}

/* Print a line, append its row, and send it to the reports.  Takes row (NULL: out of memory). */
static int tell(struct metrics *m, json_t *row, const char *line, bool closing,
                struct ckpt_err *err)
{
    int rc = row ? 0 : ckpt_nomem(err, sizeof *row);
    char other[1024];

    if (rc == 0 && m->speak) {
        if (line_of_row(other, sizeof other, m->o.settings->log_format, row))
            line = other;
        ckpt_log(CKPT_LOG_NOTE, "%s", line);
        rc = append(m, row, err);
        reports_row(m->reports, row, closing);
        reports_line(m->reports, line);
    }
    json_decref(row);
    return rc;
}

static void send(struct metrics *m, enum run_event_kind kind)
{
    const struct run_state *state = m->o.state;

    m->now.kind = kind;
    m->now.step = state->global_step;
    m->now.max_steps = state->max_steps;
    m->now.epoch = state->epoch;
    m->now.num_epochs = (double)state->num_train_epochs;
    if (m->speak && m->o.event)
        m->o.event(m->o.ctx, &m->now);
}

/* -- begin and end ---------------------------------------------------------------------------- */

void metrics_close(struct metrics *m, int status)
{
    if (!m)
        return;
    reports_close(m->reports, status);
    usage_close(&m->usage);
    log_file_close(&m->file);
    ckpt_free(m);
}

/* What computes: a GPU's label, or what the host calls its CPUs. */
static const char *device_name(char name[DEVICE_NAME], const struct device *dev)
{
    FILE *f = dev->discrete ? NULL : fopen("/proc/cpuinfo", "re");
    char line[DEVICE_NAME + 32], *colon;

    snprintf(name, DEVICE_NAME, "%s", dev->discrete ? dev->label : "CPU");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && (colon = strchr(line, ':'))) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, DEVICE_NAME, "%.*s", DEVICE_NAME - 1, colon + 1 + (colon[1] == ' '));
            break;
        }
    if (f)
        fclose(f);
    return name;
}

/* Which of a rank's states lie on the host. */
static const char *offloaded(const struct settings *s)
{
    bool states = strcmp(s->offload_optimizer, "cpu") == 0;
    bool weights = strcmp(s->offload_param, "cpu") == 0;

    return states && weights ? "optimizer and parameters"
           : states ? "optimizer" : weights ? "parameters" : "none";
}

/* The row after which rows are this run's, not those of earlier ones. */
static int begin(struct metrics *m, struct ckpt_err *err)
{
    const struct run_state *state = m->o.state;
    const struct device *dev = m->o.session->dev;
    const char *from = m->o.resumed_from;
    char device[DEVICE_NAME], last;
    json_t *row;
    int rc;

    /* A line that an earlier run did not end must not swallow this one. */
    if (m->file.size > 0 && pread(m->file.fd, &last, 1, (off_t)m->file.size - 1) == 1 &&
        last != '\n' && (rc = log_file_put(&m->file, "\n", 1, err)) != 0)
        return rc;
    row = json_pack("{s:s,s:s,s:I,s:I,s:s?,s:b,s:s,s:i,s:i,s:i,s:s}", "run", m->id, "version",
                    "ckpt " CKPT_VERSION, "start_step", (json_int_t)state->global_step,
                    "max_steps", (json_int_t)state->max_steps, "resumed_from",
                    *from ? from : NULL, "continues", m->o.continues, "device",
                    device_name(device, dev), "ranks", m->o.session->comm->world_size, "threads",
                    dev->discrete ? 0 : dev->threads, "zero_stage",
                    settings_stage(m->o.settings), "offload", offloaded(m->o.settings));
    rc = row ? append(m, row, err) : ckpt_nomem(err, sizeof *row);
    json_decref(row);
    return rc;
}

static int open_files(struct metrics *m, struct ckpt_err *err)
{
    unsigned char id[8];
    char path[4200];
    int rc;

    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return ckpt_fail(err, CKPT_EIO, "getrandom: no random bytes");
    ckpt_digest_hex(m->id, id, sizeof id);
    const struct reports_start start = {
        .settings = m->o.settings, .session = m->o.session, .id = m->id,
        .step = m->o.state->global_step, .continues = m->o.continues,
    };

    snprintf(path, sizeof path, "%.4000s/%s", m->o.settings->output_dir, METRICS_LOG_NAME);
    rc = log_file_open(&m->file, path, false, err);
    if (rc == 0)
        rc = begin(m, err);
    return rc ? rc : reports_open(&m->reports, &start, err);
}

int metrics_ready(const struct settings *s, struct ckpt_err *err)
{
    char path[4200];
    int rc;

    snprintf(path, sizeof path, "%.4000s/%s", s->output_dir, METRICS_LOG_NAME);
    rc = log_file_ready(path, err);
    return rc ? rc : reports_ready(s, err);
}

int metrics_open(struct metrics **out, const struct metrics_opts *opts, struct ckpt_err *err)
{
    struct metrics *m = ckpt_alloc(1, sizeof *m);
    int rc = 0;

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->o = *opts;
    m->file.fd = -1;
    m->speak = opts->session->comm->rank == 0;
    m->first_loss = m->last_loss = NAN;
    m->w.start = clock_now();
    m->now = (struct run_event){.loss = NAN, .grad_norm = NAN, .learning_rate = NAN,
                                .tokens_per_second = NAN, .eval_loss = NAN, .memory = NAN};
    if (m->speak) {
        usage_open(&m->usage, opts->session->dev);
        rc = open_files(m, err);
    }
    if (rc)
        metrics_close(m, ckpt_err_status(rc));
    else
        *out = m;
    return rc;
}

/* -- steps ------------------------------------------------------------------------------------ */

/* The rate of the last steps, a tenth of it new with each; the device's memory now and then. */
static void watch(struct metrics *m, int64_t tokens)
{
    double t = clock_now(), since = m->rate_at > 0 ? t - m->rate_at : t - m->w.start;
    double rate = since > 0 ? (double)tokens / since : 0;

    m->rate = m->rate_at > 0 ? 0.9 * m->rate + 0.1 * rate : rate;
    m->rate_at = t;
    m->now.tokens_per_second = m->rate;
    if (t - m->memory_at >= MEMORY_EVERY) {
        m->now.memory = usage_memory(&m->usage);
        m->memory_at = t;
    }
}

void metrics_count(struct metrics *m, const struct step_result *res, double lr)
{
    bool counts = !res->skipped ||
                  (!m->o.settings->logging_nan_inf_filter && !isfinite(res->loss));
    struct run_state *state = m->o.state;

    m->w.tokens += res->n_tokens;
    m->tokens += res->n_tokens;
    m->w.stepped += res->seconds;
    m->w.communication += res->communication;
    m->stepped += res->seconds;
    m->communication += res->communication;
    if (counts) {
        state->loss_since_log += res->loss;
        state->last_norm = res->grad_norm;
        state->steps_since_log++;
    }
    m->now.loss = res->loss;
    m->now.grad_norm = res->grad_norm;
    m->now.learning_rate = lr;
    if (!m->speak)
        return;
    watch(m, res->n_tokens);
    send(m, RUN_EVENT_STEP);
    reports_usage(m->reports, &m->usage);
}

/* What share of steps' time were collectives, where there are any; false: out of memory. */
static bool put_share(json_t *row, double communication, double seconds)
{
    return !(seconds > 0) || isnan(communication) ||
           json_object_set_new(row, "communication_share",
                               json_real(communication / seconds)) == 0;
}

/* HF's row of the history, and beside it what metrics.jsonl has more. */
static int step_rows(struct metrics *m, json_t **row, json_t **full, double loss, double rate,
                     double seconds, struct ckpt_err *err)
{
    const struct run_state *state = m->o.state;
    bool seen = strcmp(m->o.settings->include_num_input_tokens_seen, "no") != 0 &&
                strcmp(m->o.settings->include_num_input_tokens_seen, "false") != 0;

    *row = json_pack("{s:f,s:o,s:f,s:o,s:I}", "epoch", state->epoch, "grad_norm",
                     metrics_number(state->last_norm), "learning_rate", m->now.learning_rate,
                     "loss", metrics_number(loss), "step", (json_int_t)state->global_step);
    if (*row && seen &&
        json_object_set_new(*row, "num_input_tokens_seen",
                            json_integer((json_int_t)state->num_input_tokens_seen))) {
        json_decref(*row);
        *row = NULL;
    }
    *full = json_deep_copy(*row);
    if (*full && json_object_set_new(*full, "tokens_per_second", json_real(rate)) == 0 &&
        json_object_set_new(*full, "seconds", json_real(seconds)) == 0 &&
        put_share(*full, m->w.communication, m->w.stepped))
        return 0;
    json_decref(*row);
    json_decref(*full);
    return ckpt_nomem(err, sizeof **full);
}

int metrics_step(struct metrics *m, struct ckpt_err *err)
{
    struct run_state *state = m->o.state;
    double t = clock_now(), seconds = t - m->w.start, loss, rate;
    char line[256], text[32], norm[32];
    json_t *row, *full;
    int rc;

    if (state->steps_since_log == 0)    /* all were skipped: each has a line */
        return 0;
    loss = state->loss_since_log / (double)state->steps_since_log;
    rate = seconds > 0 ? (double)m->w.tokens / seconds : 0;
    if ((rc = step_rows(m, &row, &full, loss, rate, seconds, err)) != 0)
        return rc;
    if (m->speak && strcmp(m->o.settings->log_format, "table") == 0 &&
        m->lines++ % HEADER_EVERY == 0)
        ckpt_log(CKPT_LOG_NOTE, "%12s %8s %10s %10s %10s %10s %9s", "step", "epoch", "loss",
                 "grad norm", "lr", "tokens/s", "s");
    snprintf(line, sizeof line, "%6lld/%-5lld %8.3f %10s %10s %10.3e %10.0f %9.2f",
             (long long)state->global_step, (long long)state->max_steps, state->epoch,
             readable(text, loss, 5), readable(norm, state->last_norm, 4), m->now.learning_rate,
             rate, seconds);
    rc = tell(m, full, line, false, err);
    if (rc == 0)
        rc = run_state_log(state, row, err);
    else
        json_decref(row);
    if (rc)
        return rc;
    m->last_loss = loss;
    if (isnan(m->first_loss))
        m->first_loss = loss;
    m->now.loss = loss;
    m->now.grad_norm = state->last_norm;
    send(m, RUN_EVENT_LOG);
    state->loss_since_log = 0;
    state->steps_since_log = 0;
    m->w = (struct window){.start = clock_now()};
    return 0;
}

/* -- evaluations, checkpoints, the end -------------------------------------------------------- */

int metrics_eval(struct metrics *m, const struct evaluate_result *e, struct ckpt_err *err)
{
    const struct run_state *state = m->o.state;
    char line[256], loss[32], perplexity[32];
    json_t *row = json_pack("{s:f,s:o,s:f,s:f,s:f,s:I}", "epoch", state->epoch, "eval_loss",
                            metrics_number(e->loss), "eval_runtime", e->seconds,
                            "eval_samples_per_second",
                            (double)e->n_samples / fmax(e->seconds, 1e-9),
                            "eval_steps_per_second",
                            (double)e->n_batches / fmax(e->seconds, 1e-9), "step",
                            (json_int_t)state->global_step);
    json_t *kept = json_deep_copy(row);
    int rc;

    snprintf(line, sizeof line, "%6lld/%-5lld eval loss %s, perplexity %s over %lld "
             "tokens, %.2f s, %.1f samples/s",
             (long long)state->global_step, (long long)state->max_steps,
             readable(loss, e->loss, 5), readable(perplexity, exp(e->loss), 3),
             (long long)e->n_targets, e->seconds, (double)e->n_samples / fmax(e->seconds, 1e-9));
    rc = tell(m, row, line, false, err);
    if (rc)
        json_decref(kept);
    else
        rc = run_state_log(m->o.state, kept, err);
    m->now.eval_loss = e->loss;
    if (rc == 0)
        send(m, RUN_EVENT_EVAL);
    m->rate_at = 0;                     /* the time of an evaluation is no step's */
    return rc;
}

void metrics_saved(struct metrics *m, const struct metrics_save *s)
{
    char where[80] = "", waited[48] = "";

    if (s->held >= 0)
        snprintf(waited, sizeof waited, ", steps waited %.2f", s->held);
    if (s->folders > 1)
        snprintf(where, sizeof where, ", in %d folders: `ckpt-merge --together` reads them as one",
                 s->folders);
    if (m->speak)
        ckpt_log(CKPT_LOG_NOTE, "%6lld/%-5lld saved %s in %.2f s%s%s", (long long)s->step,
                 (long long)m->o.state->max_steps, s->path, s->seconds, waited, where);
    m->now.checkpoint = s->path;
    send(m, RUN_EVENT_SAVE);
    m->rate_at = 0;
}

void metrics_histogram(void *metrics, const char *tag, const struct histogram *h)
{
    struct metrics *m = metrics;

    reports_histogram(m->reports, m->o.state->global_step + 1, tag, h);
}

/* The speed, and the most memory that the steps took; of several ranks each has its own device. */
static void closing_line(struct metrics *m, char line[256], const json_t *row, int64_t steps,
                         double seconds, const struct memory_figures *memory)
{
    const json_t *mean = json_object_get(row, "train_loss");
    char loss[32], whose[16] = "";
    size_t n = (size_t)snprintf(line, 256, "trained %lld steps in %.1f s", (long long)steps,
                                seconds);

    if (json_is_number(mean))
        n += (size_t)snprintf(line + n, 256 - n, ", mean loss %s",
                              readable(loss, json_number_value(mean), 5));
    n += (size_t)snprintf(line + n, 256 - n, ", %.0f tokens/s, %.1f samples/s",
                          (double)m->tokens / fmax(seconds, 1e-9),
                          json_number_value(json_object_get(row, "train_samples_per_second")));
    if (m->o.session->comm->world_size > 1)
        snprintf(whose, sizeof whose, " of rank 0");
    if (memory->n > 0)
        snprintf(line + n, 256 - n, "; memory%s: peak %.0f, mean %.0f, least %.0f MiB", whose,
                 memory->peak, memory->mean, memory->least);
    else
        snprintf(line + n, 256 - n, "; memory%s: peak %.0f MiB", whose, usage_peak(&m->usage));
}

int metrics_closing(struct metrics *m, json_t *row, int64_t steps, double seconds,
                    const struct memory_figures *memory, struct ckpt_err *err)
{
    char line[256] = "";
    json_t *kept, *full;
    int rc;

    if (m->speak)
        closing_line(m, line, row, steps, seconds, memory);
    if (row && memory->n > 0) {
        json_object_set_new(row, "device_memory_peak", json_real(memory->peak));
        json_object_set_new(row, "device_memory_mean", json_real(memory->mean));
        json_object_set_new(row, "device_memory_least", json_real(memory->least));
    }
    kept = json_deep_copy(row);
    full = json_deep_copy(row);
    rc = full && put_share(full, m->communication, m->stepped) ? tell(m, full, line, true, err)
                                                               : ckpt_nomem(err, sizeof *full);
    if (rc)
        json_decref(kept);
    else
        rc = run_state_log(m->o.state, kept, err);
    return rc;
}

void metrics_warn(const struct metrics *m)
{
    if (m->last_loss > DIVERGED * m->first_loss)
        ckpt_log(CKPT_LOG_WARNING, "the loss began at %g and ended at %g: the run diverged, a "
                 "smaller `learning_rate` may help", m->first_loss, m->last_loss);
}
