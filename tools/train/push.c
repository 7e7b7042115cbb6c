/* train/push - see train/push.h. */
#include "tools/train/push.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libckpt/base/json.h"
#include "libckpt/err.h"
#include "libckpt/io/lock.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "tools/cli.h"
#include "tools/train/child.h"
#include "trainer/clock.h"
#include "trainer/comm/report.h"

#define OUTPUT ".push.lock"            /* in the output folder; locked by who publishes */
#define QUIET  3.0                      /* seconds of a look that are not worth a word */

/* A checkpoint that is not published yet. */
struct item {
    char             *line;             /* its path and a newline; NULL: handed on */
    struct ckpt_lock *lease;
};

enum stage {
    LOOKS,                              /* at the destination */
    IDLE,                               /* nothing runs, or an earlier one has the lock */
    PUBLISHES,
    OVER
};

struct push {
    enum stage   stage;
    const char  *url, *output_dir;
    struct child child;
    struct item *item;                  /* [n] in order */
    size_t       n, cap;
    size_t       sent;                  /* bytes of the first line that is not handed on */
    int          out;                   /* the file with its output, which outlives this process as
                                           a pipe would not; -1: none yet */
    off_t        heard;                 /* bytes of it */
    int          errors;                /* what the one that looks prints on standard error; -1 */
    char         tool[4200];
    bool         said;                  /* that an earlier one has the lock */
    int          status;
};

/* ckpt-push in the folder of this program. */
static int find_tool(char tool[4200], struct ckpt_err *err)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n < 0)
        return ckpt_fail_errno(err, CKPT_ENOTFOUND, errno, "/proc/self/exe");
    self[n] = '\0';
    slash = strrchr(self, '/');
    snprintf(tool, 4200, "%.*s/ckpt-push", slash ? (int)(slash - self) : 0, self);
    if (access(tool, X_OK))
        return ckpt_fail_errno(err, CKPT_ENOTFOUND, errno, "`push_to`: %s", tool);
    return 0;
}

static int start(struct push *p, bool publishes, bool dry, struct ckpt_err *err)
{
    const char *const publish[] = {p->tool, "-q", "--", p->url, NULL};
    const char *const look[] = {p->tool, "-q", "--json", dry ? "--dry-run" : "--no-dry-run", "--",
                                p->url, NULL};
    const struct child_opts opts = {.argv = publishes ? publish : look, .pipe = publishes,
                                    .out = publishes ? p->out : 0,
                                    .errors = publishes ? 0 : p->errors};

    p->stage = publishes ? PUBLISHES : LOOKS;
    return child_start(&p->child, &opts, err);
}

int push_open(struct push **out, const char *url, const char *output_dir, bool dry,
              struct ckpt_err *err)
{
    struct push *p;
    int rc;

    *out = NULL;
    if (!url)
        return 0;
    if (!(p = ckpt_alloc(1, sizeof *p)))
        return ckpt_nomem(err, sizeof *p);
    p->child = (struct child){.in = -1};
    p->out = -1;
    p->url = url;
    p->output_dir = output_dir;
    p->errors = memfd_create("ckpt-push", MFD_CLOEXEC);
    rc = p->errors < 0 ? ckpt_fail_errno(err, CKPT_ENOMEM, errno, "`push_to`")
                       : find_tool(p->tool, err);
    if (rc == 0)
        rc = start(p, false, dry, err);
    if (rc)
        push_close(p);
    else
        *out = p;
    return rc;
}

/* The code of an exit status; an answer that nobody knows is a service that is not there. */
static int code_of(int status)
{
    for (int code = CKPT_ESTOPPED; code < 0; code++)    /* 75 is "stopped", not "a peer failed" */
        if (ckpt_err_status(code) == status)
            return code;
    return CKPT_EDEVICE;
}

/* The error of the one that looked, which it printed as one object. */
static int tell_look(const struct push *p, int status, struct ckpt_err *err)
{
    char text[8192], *line;
    ssize_t n = pread(p->errors, text, sizeof text - 1, 0);
    const char *what = NULL, *hint = NULL, *reason = NULL;
    struct ckpt_err ignored = {0};
    json_t *o = NULL;

    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[n > 0 ? n : 0] = '\0';
    line = strrchr(text, '\n') ? strrchr(text, '\n') + 1 : text;
    if (ckpt_json_parse(&o, line, strlen(line), CKPT_JSON_LINE, &ignored) == 0) {
        what = json_string_value(json_object_get(o, "error"));
        hint = json_string_value(json_object_get(o, "hint"));
        reason = json_string_value(json_object_get(o, "reason"));
    }
    if (what)
        ckpt_fail_as(err, code_of(status), reason ? reason : "", "`push_to`: %s", what);
    else if (status > 128)
        ckpt_fail(err, CKPT_EDEVICE, "`push_to`: ckpt-push was ended by signal %d", status - 128);
    else
        ckpt_fail(err, code_of(status), "`push_to`: ckpt-push ended with status %d%s%s", status,
                  *line ? ": " : "", line);
    if (hint)                           /* options in it are those of ckpt-push */
        ckpt_err_hint(err, "%s%s", strncmp(hint, "--", 2) == 0 ? "ckpt-push " : "", hint);
    json_decref(o);
    return ckpt_err_code(err);
}

int push_ready(struct push *p, struct ckpt_err *err)
{
    double began = clock_now();
    int rc = 0;

    if (!p || p->stage != LOOKS)
        return 0;
    while (!child_ended(&p->child, &p->status)) {
        if (cli_stop)
            return cli_stopped(err);
        if (!p->said && clock_now() - began > QUIET) {
            ckpt_log(CKPT_LOG_NOTE, "`push_to`: waiting until ckpt-push has looked at the "
                     "destination");
            p->said = true;
        }
        child_pause();
    }
    p->said = false;
    p->stage = IDLE;
    if (p->status == 0)
        return 0;
    rc = tell_look(p, p->status, err);
    if (report_saved_before() < 0 || (rc != CKPT_EDEVICE && rc != CKPT_ESTOPPED)) {
        p->stage = OVER;
        return rc;
    }
    ckpt_log(CKPT_LOG_WARNING, "%s", err->text);
    ckpt_err_clear(err);
    p->status = 0;
    return 0;
}

/* The first one is published, or will never be. */
static void drop_first(struct push *p)
{
    ckpt_lock_release(p->item[0].lease);
    ckpt_free(p->item[0].line);
    memmove(p->item, p->item + 1, --p->n * sizeof *p->item);
}

/* Hand on as much as the pipe takes. */
static void hand_on(struct push *p)
{
    for (size_t i = 0; i < p->n && p->child.in >= 0; i++) {
        struct item *it = &p->item[i];
        size_t left = it->line ? strlen(it->line) - p->sent : 0;
        ssize_t k = left ? write(p->child.in, it->line + p->sent, left) : 0;

        if (k < 0 && errno == EPIPE)
            child_hang_up(&p->child);
        if (k < 0 || (size_t)k < left) {
            p->sent += k > 0 ? (size_t)k : 0;
            return;
        }
        ckpt_free(it->line);
        it->line = NULL;
        p->sent = 0;
    }
}

/* Each line that it prints is a checkpoint that is published. */
static void listen_to(struct push *p)
{
    char text[4096];
    ssize_t n;

    while (p->out >= 0 && (n = pread(p->out, text, sizeof text, p->heard)) > 0) {
        p->heard += n;
        for (ssize_t i = 0; i < n; i++)
            if (text[i] == '\n' && p->n > 0)
                drop_first(p);
    }
}

/* Nothing is published from here on. */
static void give_up(struct push *p)
{
    p->stage = OVER;
    if (p->n > 0)
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: %zu checkpoint%s not published", p->n,
                 p->n == 1 ? " is" : "s are");
    while (p->n > 0)
        drop_first(p);
}

/* The one that publishes, unless one of an earlier try still does. */
static void publish(struct push *p)
{
    struct ckpt_err err = {0};
    bool got;
    int fd, rc = ckpt_lock_pass(&fd, &got, p->output_dir, OUTPUT, &err);

    if (rc == 0 && !got) {
        if (!p->said)
            ckpt_log(CKPT_LOG_NOTE, "`push_to`: the ckpt-push of an earlier try still publishes, "
                     "this one's begins after it");
        p->said = true;
        return;
    }
    if (rc == 0) {
        p->out = fd;
        if (ftruncate(fd, 0))
            rc = ckpt_fail_errno(&err, CKPT_EIO, errno, "%s/" OUTPUT, p->output_dir);
    }
    if (rc == 0)
        rc = start(p, true, false, &err);
    if (rc) {
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: %s", err.text);
        p->status = ckpt_err_status(rc);
        give_up(p);
    }
}

/* The child has ended. */
static void ended(struct push *p)
{
    listen_to(p);
    child_hang_up(&p->child);
    p->stage = IDLE;
    if (p->status > 128)
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: ckpt-push was ended by signal %d", p->status - 128);
    else if (p->status || p->n > 0)
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: ckpt-push ended with status %d", p->status);
    give_up(p);
}

void push_look(struct push *p)
{
    if (!p || p->stage == LOOKS || p->stage == OVER)
        return;
    if (p->stage == PUBLISHES) {
        hand_on(p);
        listen_to(p);
    }
    if (p->child.pid && child_ended(&p->child, &p->status))
        ended(p);
    if (p->stage == IDLE && p->n > 0)
        publish(p);
}

void push_put(struct push *p, const char *path)
{
    struct ckpt_err err = {0};
    size_t size = strlen(path) + 2;
    char *line;

    if (!p)
        return;
    push_look(p);
    if (p->stage == OVER) {
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: %s is not published", path);
        return;
    }
    line = ckpt_alloc(size, 1);
    if (!line || ckpt_reserve(&p->item, p->n, &p->cap, sizeof *p->item, &err)) {
        ckpt_free(line);
        ckpt_log(CKPT_LOG_WARNING, "`push_to`: out of memory: %s is not published", path);
        return;
    }
    snprintf(line, size, "%s\n", path);
    p->item[p->n++] = (struct item){line, ckpt_lock_reader(path)};
    push_look(p);
}

/* Whether all is handed on. */
static bool has_all(const struct push *p)
{
    return p->n == 0 || !p->item[p->n - 1].line;
}

int push_end(struct push *p)
{
    if (!p || p->stage == LOOKS)        /* the run ended before it was ready */
        return 0;
    push_look(p);
    if (p->stage != OVER && p->n > 0)
        ckpt_log(CKPT_LOG_NOTE, "waiting until ckpt-push has published %zu checkpoint%s", p->n,
                 p->n == 1 ? "" : "s");
    while (p->stage != OVER && !(p->stage == IDLE && p->n == 0)) {
        if (p->stage == PUBLISHES && has_all(p))
            child_hang_up(&p->child);
        push_look(p);
        if (p->child.pid || p->n > 0)
            child_pause();
    }
    return p->status;
}

void push_close(struct push *p)
{
    if (!p)
        return;
    child_hang_up(&p->child);
    if (p->out >= 0)
        close(p->out);
    if (p->errors >= 0)
        close(p->errors);
    while (p->n > 0)
        drop_first(p);
    ckpt_free(p->item);
    ckpt_free(p);
}
