/* metrics - see metrics.h. */
#include "trainer/run/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "formats/logs/metrics_log.h"
#include "libckpt/ckpt.h"
#include "libckpt/digest.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

struct metrics {
    int  fd;                    /* -1: silent rank */
    long lines;
};

void metrics_close(struct metrics *m)
{
    if (m && m->fd >= 0)
        close(m->fd);
    ckpt_free(m);
}

/* Seconds since 1970. */
static json_t *time_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return json_real((double)t.tv_sec + 1e-3 * (double)(t.tv_nsec / 1000000));
}

/* One line in one write, so that a reader never sees half of one. */
static int append(struct metrics *m, const json_t *row, struct ckpt_err *err)
{
    json_t *timed = json_copy((json_t *)row);
    struct ckpt_buf b;
    int rc = timed && json_object_set_new(timed, "time", time_now()) == 0
                 ? 0 : ckpt_nomem(err, sizeof *timed);

    ckpt_buf_init(&b, (size_t)1 << 20);
    if (rc == 0)
        rc = ckpt_json_write(&b, timed, 0, false, err);
    json_decref(timed);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0 && write(m->fd, b.data, b.len) != (ssize_t)b.len)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "metrics.jsonl: write");
    ckpt_buf_release(&b);
    return rc;
}

/* The row after which rows are this run's, not those of earlier ones. */
static int begin(struct metrics *m, const struct metrics_start *start, struct ckpt_err *err)
{
    unsigned char id[8];
    char hex[2 * sizeof id + 1], last;
    json_t *row;
    int rc;

    /* A line that an earlier run did not end must not swallow this one. */
    if (pread(m->fd, &last, 1, lseek(m->fd, 0, SEEK_END) - 1) == 1 && last != '\n' &&
        write(m->fd, "\n", 1) != 1)
        return ckpt_fail_errno(err, CKPT_EIO, errno, METRICS_LOG_NAME ": write");
    if (getrandom(id, sizeof id, 0) != (ssize_t)sizeof id)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "getrandom");
    ckpt_digest_hex(hex, id, sizeof id);
    row = json_pack("{s:s,s:s,s:I,s:I,s:s?,s:b}", "run", hex, "version", "ckpt " CKPT_VERSION,
                    "start_step", (json_int_t)start->step, "max_steps",
                    (json_int_t)start->max_steps, "resumed_from",
                    *start->resumed_from ? start->resumed_from : NULL, "continues",
                    start->continues);
    rc = row ? append(m, row, err) : ckpt_nomem(err, sizeof *row);
    json_decref(row);
    return rc;
}

int metrics_open(struct metrics **out, const char *output_dir, bool speak,
                 const struct metrics_start *start, struct ckpt_err *err)
{
    struct metrics *m = ckpt_alloc(1, sizeof *m);
    char path[4200];
    int rc = 0;

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->fd = -1;
    snprintf(path, sizeof path, "%s/%s", output_dir, METRICS_LOG_NAME);
    if (speak) {
        m->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
        rc = m->fd < 0 ? ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path)
                       : begin(m, start, err);
    }
    if (rc)
        metrics_close(m);
    else
        *out = m;
    return rc;
}

json_t *metrics_number(double v) { return isfinite(v) ? json_real(v) : json_null(); }

char *metrics_text(char text[32], double v, int decimals)
{
    snprintf(text, 32, fabs(v) < 1e5 ? "%.*f" : "%.*g", decimals, v);
    return text;
}

int metrics_row(struct metrics *m, const json_t *row, const char *line, struct ckpt_err *err)
{
    if (m->fd < 0)
        return 0;
    ckpt_log(CKPT_LOG_NOTE, "%s", line);
    return append(m, row, err);
}

int metrics_step(struct metrics *m, const struct metrics_step *s, json_t **row,
                 struct ckpt_err *err)
{
    double rate = s->seconds > 0 ? (double)s->tokens / s->seconds : 0;
    char line[256], loss[32], norm[32];
    json_t *full;
    int rc;

    *row = json_pack("{s:f,s:o,s:f,s:o,s:I}", "epoch", s->epoch, "grad_norm",
                     metrics_number(s->grad_norm), "learning_rate", s->learning_rate, "loss",
                     metrics_number(s->loss), "step", (json_int_t)s->step);
    full = json_deep_copy(*row);
    if (!*row || !full || json_object_set_new(full, "tokens_per_second", json_real(rate)) ||
        json_object_set_new(full, "seconds", json_real(s->seconds))) {
        json_decref(full);
        return ckpt_nomem(err, sizeof *full);
    }
    if (m->fd >= 0 && m->lines++ % 40 == 0)
        ckpt_log(CKPT_LOG_NOTE, "%12s %8s %10s %10s %10s %10s %9s", "step", "epoch", "loss",
                 "grad norm", "lr", "tokens/s", "s");
    snprintf(line, sizeof line, "%6lld/%-5lld %8.3f %10s %10s %10.3e %10.0f %9.2f",
             (long long)s->step, (long long)s->max_steps, s->epoch, metrics_text(loss, s->loss, 5),
             metrics_text(norm, s->grad_norm, 4), s->learning_rate, rate, s->seconds);
    rc = metrics_row(m, full, line, err);
    json_decref(full);
    return rc;
}
