/* rows_out - see rows_out.h. */
#include "tools/eval/rows_out.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/fault.h"
#include "libckpt/base/json.h"
#include "libckpt/commit.h"
#include "libckpt/io/commit_sys.h"
#include "libckpt/mem.h"
#include "tools/cli.h"

#define ROW_BYTES ((size_t)1 << 30)

struct rows_out {
    char  *path, *part;                 /* NULL: standard output */
    int    fd;
    bool   in_order, overwrite;
    size_t next;                        /* rows before it are written, with in_order */
};

/* Whether this operation is one that a test makes fail. */
static bool fails(enum ckpt_fault kind, int why)
{
    bool now = ckpt_fault(kind);

    errno = now ? why : errno;
    return now;
}

/* Whether the folder of path is there and lets files be made in it. */
static int check_folder(const char *path, struct ckpt_err *err)
{
    char *dir = ckpt_strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    int rc = dir ? 0 : ckpt_nomem(err, strlen(path));

    if (slash)
        slash[slash == dir] = '\0';
    if (dir && access(slash ? dir : ".", W_OK | X_OK) != 0)
        rc = ckpt_fail(err, CKPT_ECREATE, "%s: its folder: %s", path, strerror(errno));
    ckpt_free(dir);
    return rc;
}

int rows_out_check(const char *path, bool overwrite, struct ckpt_err *err)
{
    struct stat st;
    int rc;

    if (strcmp(path, "-") == 0)
        return 0;
    if ((rc = ckpt_out_check(path, err)) != 0)
        return rc;
    if (stat(path, &st) != 0)
        return check_folder(path, err);
    if (S_ISDIR(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE, "%s: is a directory", path);
    if (!S_ISREG(st.st_mode))
        return ckpt_fail(err, CKPT_ECREATE, "%s: is a device, a fifo or a socket, a name of a file "
                         "is wanted", path);
    if (overwrite)
        return 0;
    ckpt_fail(err, CKPT_ECREATE, "%s: exists already", path);
    return ckpt_err_hint(err, "--overwrite replaces it");
}

/* Lock the part against another run, which would write into it or rename it. */
static int claim(const struct rows_out *o, struct ckpt_err *err)
{
    struct stat here, there;

    bool locked = flock(o->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;

    /* some file systems have no locks */
    if (locked && fstat(o->fd, &here) == 0 && stat(o->part, &there) == 0 &&
        here.st_ino == there.st_ino && here.st_dev == there.st_dev)
        return 0;
    return ckpt_fail(err, CKPT_ECREATE, "%s: another run is writing it", o->path);
}

int rows_out_open(struct rows_out **out, const char *path, bool in_order, bool overwrite,
                  struct ckpt_err *err)
{
    struct rows_out *o = ckpt_alloc(1, sizeof *o);
    size_t len = strlen(path) + sizeof ".part";
    int rc = 0;

    *out = o;
    if (!o)
        return ckpt_nomem(err, sizeof *o);
    o->fd = STDOUT_FILENO;
    o->in_order = in_order;
    o->overwrite = overwrite;
    if (strcmp(path, "-") == 0)
        return 0;
    if ((rc = rows_out_check(path, overwrite, err)) != 0)
        return rc;
    o->fd = -1;
    o->path = ckpt_strdup(path);
    o->part = ckpt_alloc(len, 1);
    if (!o->path || !o->part)
        return ckpt_nomem(err, len);
    snprintf(o->part, len, "%s.part", path);
    if (!fails(CKPT_FAULT_OPEN, EACCES))
        o->fd = open(o->part, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (o->fd < 0)
        return ckpt_fail(err, CKPT_ECREATE, "%s: %s", o->part, strerror(errno));
    if ((rc = claim(o, err)) != 0)
        return rc;
    if ((rc = rows_out_check(path, overwrite, err)) != 0) {     /* it came meanwhile */
        unlink(o->part);
        return rc;
    }
    return ftruncate(o->fd, 0) == 0 ? 0 : ckpt_fail(err, CKPT_EIO, "%s: %s", o->part,
                                                    strerror(errno));
}

/* Whether a reader takes PIPE_BUF bytes more within a second: after a signal a row that is begun is
 * finished, unless nobody reads it. */
static bool takes_more(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;

    while ((n = poll(&p, 1, 1000)) < 0 && errno == EINTR)
        continue;
    return n != 0;
}

static int write_all(struct rows_out *o, const char *at, size_t n, struct ckpt_err *err)
{
    while (n > 0) {
        bool ends = cli_stop && !o->part;
        size_t some = ends && n > PIPE_BUF ? PIPE_BUF : n;
        ssize_t k;

        if (ends && !takes_more(o->fd))
            return cli_stopped(err);
        k = fails(CKPT_FAULT_WRITE, ENOSPC) ? -1 : write(o->fd, at, some);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return ckpt_fail(err, CKPT_EIO, "%s: %s", o->part ? o->part : "standard output",
                             strerror(errno));
        at += k;
        n -= (size_t)k;
    }
    return 0;
}

static void put_text(struct ckpt_buf *b, const char *key, const char *text)
{
    ckpt_buf_printf(b, ", \"%s\": ", key);
    if (text)
        ckpt_json_put_string(b, text, strlen(text));
    else
        ckpt_buf_put_str(b, "null");
}

static bool has_reference(const struct eval_result *r, size_t i)
{
    return i >= r->first_answered && (!r->open_chats || r->reference[i][0]);
}

static int put_row(struct rows_out *o, const struct eval_result *r, size_t i,
                   const struct eval_result *base, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc = 0;

    ckpt_buf_init(&b, ROW_BYTES);
    ckpt_buf_printf(&b, "{\"index\": %zu", i);
    put_text(&b, "prompt", r->prompt[i]);
    put_text(&b, "prediction", r->text[i]);
    if (r->answers_json[i])
        ckpt_buf_printf(&b, ", \"references\": %s", r->answers_json[i]);
    else
        put_text(&b, "reference", has_reference(r, i) ? r->reference[i] : NULL);
    put_text(&b, "finish_reason", r->finish[i]);
    ckpt_buf_printf(&b, ", \"tokens\": %lld", (long long)r->n_tokens[i]);
    if (base && i < base->n)
        put_text(&b, "base", base->text[i]);
    if (r->logprobs[i])
        ckpt_buf_printf(&b, ", \"logprobs\": %s", r->logprobs[i]);
    ckpt_buf_put_str(&b, "}\n");
    if (!ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, ROW_BYTES);
    else
        rc = write_all(o, ckpt_buf_str(&b), b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

int rows_out_put(struct rows_out *o, const struct eval_result *r, size_t i,
                 const struct eval_result *base, struct ckpt_err *err)
{
    int rc = 0;

    if (!o->in_order)
        return put_row(o, r, i, base, err);
    while (rc == 0 && o->next < r->n && r->text[o->next])
        rc = put_row(o, r, o->next++, base, err);
    return rc;
}

/* Sync the folder of path, so that the new name lasts. */
static int sync_folder(const char *path, struct ckpt_err *err)
{
    char *dir = ckpt_strdup(path), *slash = dir ? strrchr(dir, '/') : NULL;
    int fd, rc;

    if (!dir)
        return ckpt_nomem(err, strlen(path));
    if (slash)
        slash[slash == dir] = '\0';
    fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = fd < 0 ? ckpt_fail(err, CKPT_EIO, "%s: its folder: %s", path, strerror(errno))
                : commit_sync_dir(fd, path, err);
    if (fd >= 0)
        close(fd);
    ckpt_free(dir);
    return rc;
}

int rows_out_commit(struct rows_out *o, struct ckpt_err *err)
{
    int rc;

    if (!o->path)
        return 0;
    if ((rc = commit_sync(o->fd, o->part, err)) != 0)
        return rc;
    /* closed after that, since it holds the lock */
    if (commit_rename(AT_FDCWD, o->part, o->path, o->overwrite) != 0)
        return ckpt_fail(err, CKPT_ECREATE, "%s: %s; the rows are in %s", o->path,
                         strerror(errno), o->part);
    return sync_folder(o->path, err);
}

void rows_out_close(struct rows_out *o)
{
    if (!o)
        return;
    if (o->path && o->fd >= 0)
        close(o->fd);
    ckpt_free(o->path);
    ckpt_free(o->part);
    ckpt_free(o);
}
