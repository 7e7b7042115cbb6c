/* metrics - see metrics.h. */
#include "trainer/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/json.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"

struct metrics {
    int  fd;                    /* -1: silent rank */
    long lines;
};

int metrics_open(struct metrics **out, const char *output_dir, bool speak, struct ckpt_err *err)
{
    struct metrics *m = ckpt_alloc(1, sizeof *m);
    char path[4096];

    *out = NULL;
    if (!m)
        return ckpt_nomem(err, sizeof *m);
    m->fd = -1;
    if (speak) {
        snprintf(path, sizeof path, "%s/metrics.jsonl", output_dir);
        m->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (m->fd < 0) {
            ckpt_fail_errno(err, CKPT_ECREATE, errno, "%s", path);
            ckpt_free(m);
            return err->code;
        }
    }
    *out = m;
    return 0;
}

void metrics_close(struct metrics *m)
{
    if (m && m->fd >= 0)
        close(m->fd);
    ckpt_free(m);
}

/* One line in one write, so that a reader never sees half of one. */
static int append(struct metrics *m, const json_t *row, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, (size_t)1 << 20);
    rc = ckpt_json_write(&b, row, 0, false, err);
    ckpt_buf_put_u8(&b, '\n');
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0 && write(m->fd, b.data, b.len) != (ssize_t)b.len)
        rc = ckpt_fail_errno(err, CKPT_EIO, errno, "metrics.jsonl: write");
    ckpt_buf_release(&b);
    return rc;
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
    char line[256];
    json_t *full;
    int rc;

    *row = json_pack("{s:f,s:f,s:f,s:f,s:I}", "epoch", s->epoch, "grad_norm", s->grad_norm,
                     "learning_rate", s->learning_rate, "loss", s->loss, "step",
                     (json_int_t)s->step);
    full = json_deep_copy(*row);
    if (!*row || !full || json_object_set_new(full, "tokens_per_second", json_real(rate)) ||
        json_object_set_new(full, "seconds", json_real(s->seconds))) {
        json_decref(full);
        return ckpt_nomem(err, sizeof *full);
    }
    if (m->fd >= 0 && m->lines++ % 40 == 0)
        ckpt_log(CKPT_LOG_NOTE, "%12s %8s %10s %10s %10s %10s %9s", "step", "epoch", "loss",
                 "grad norm", "lr", "tokens/s", "s");
    snprintf(line, sizeof line, "%6lld/%-5lld %8.3f %10.5f %10.4f %10.3e %10.0f %9.2f",
             (long long)s->step, (long long)s->max_steps, s->epoch, s->loss, s->grad_norm,
             s->learning_rate, rate, s->seconds);
    rc = metrics_row(m, full, line, err);
    json_decref(full);
    return rc;
}
