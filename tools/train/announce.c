/* train/announce - see train/announce.h. */
#include "tools/train/announce.h"

#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/io/lock.h"
#include "libckpt/log.h"
#include "tools/train/child.h"

/* A checkpoint that nobody may have seen yet. */
struct item {
    char             *path;
    struct ckpt_lock *lease;
    uint64_t          end;      /* of its line in all that was printed; 0: that is to come */
    bool              read;     /* its line is no longer in the pipe */
};

struct announce {
    struct cli     *cli;
    int64_t         limit;
    struct item    *item;       /* [n] in order */
    size_t          n, cap;
    bool            pipe;       /* standard output is one */
    bool            said;       /* that the reader is behind */
    int             failed;     /* standard output did: told once, and in the exit status */
    struct ckpt_err lost;       /* why */
};

int announce_open(struct announce **out, struct cli *cli, int64_t limit, struct ckpt_err *err)
{
    struct announce *a = ckpt_alloc(1, sizeof *a);
    struct stat st;

    *out = a;
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    a->cli = cli;
    a->limit = limit;
    a->pipe = fstat(STDOUT_FILENO, &st) == 0 && S_ISFIFO(st.st_mode);
    return 0;
}

static void drop_first(struct announce *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ckpt_lock_release(a->item[i].lease);
        ckpt_free(a->item[i].path);
    }
    a->n -= n;
    if (n > 0)
        memmove(a->item, a->item + n, a->n * sizeof *a->item);
}

/* The first one that nobody read, or NULL. */
static const char *first_unread(const struct announce *a)
{
    for (size_t i = 0; i < a->n; i++)
        if (!a->item[i].read)
            return a->item[i].path;
    return NULL;
}

/* A closed pipe, or a full disk behind it, must not end the training. */
static void give_up(struct announce *a)
{
    const char *path = first_unread(a);

    ckpt_log(CKPT_LOG_WARNING, "%s: no checkpoint is announced any more, from %s on; training and "
             "saving go on", a->lost.text, path ? path : "the next");
    drop_first(a, a->n);
}

/* Whether a line can be printed at once. */
static bool has_space(const struct announce *a)
{
    struct pollfd fd = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return !a->pipe || poll(&fd, 1, 0) != 0;    /* a reader that left: printing will tell */
}

static void print(struct announce *a)
{
    if (a->failed)
        return;
    for (size_t i = 0; i < a->n && !a->failed; i++) {
        if (a->item[i].end)
            continue;
        if (!has_space(a))
            return;
        a->failed = cli_artifact(a->cli, a->item[i].path, NULL, &a->lost);
        a->item[i].end = a->cli->printed;
    }
    if (a->failed)
        give_up(a);
}

/* Whether the reader of a pipe left. */
static bool is_left(const struct announce *a)
{
    struct pollfd fd = {.fd = STDOUT_FILENO, .events = POLLOUT};

    return a->pipe && poll(&fd, 1, 0) == 1 && fd.revents & POLLERR;
}

/* What lies in the pipe was not read. */
static void see_read(struct announce *a)
{
    int unread = 0;

    if (a->pipe && ioctl(STDOUT_FILENO, FIONREAD, &unread))
        unread = 0;
    for (size_t i = 0; i < a->n; i++)
        a->item[i].read = a->item[i].end && a->item[i].end + (uint64_t)unread <= a->cli->printed;
}

/* At the second look after it was read: who reads a line needs a moment for a lease of its own. */
static void release(struct announce *a)
{
    bool left = is_left(a);             /* then leases are of no use, and the next line will fail */
    size_t gone = 0;

    while (gone < a->n && a->item[gone].read)
        gone++;
    drop_first(a, gone);
    for (size_t i = 0; left && i < a->n; i++) {
        ckpt_lock_release(a->item[i].lease);
        a->item[i].lease = NULL;
    }
    see_read(a);
}

static void say_behind(struct announce *a)
{
    if (a->said || a->limit == 0 || a->n <= (size_t)a->limit || a->item[0].read)
        return;
    ckpt_log(CKPT_LOG_WARNING, "standard output: its reader has not taken %zu checkpoints: they "
             "stay beyond `save_total_limit`", a->n);
    a->said = true;
}

void announce_look(struct announce *a)
{
    if (a->n == 0)
        return;
    print(a);
    release(a);
}

void announce_put(struct announce *a, const char *path)
{
    struct ckpt_err ignored = {0};
    char *copy;

    if (a->failed)
        return;
    copy = ckpt_strdup(path);
    if (!copy || ckpt_reserve(&a->item, a->n, &a->cap, sizeof *a->item, &ignored)) {
        ckpt_free(copy);
        ckpt_log(CKPT_LOG_WARNING, "out of memory: %s is not announced", path);
        return;
    }
    a->item[a->n++] = (struct item){copy, ckpt_lock_reader(path), 0, false};
    print(a);
    if (!a->pipe)
        drop_first(a, a->n);
    say_behind(a);
}

/* Whether a line waits. */
static bool waits(const struct announce *a) { return a->n > 0 && a->item[a->n - 1].end == 0; }

int announce_end(struct announce *a, struct ckpt_err *err)
{
    int rc;

    if (!a)
        return 0;
    print(a);
    if (waits(a))
        ckpt_log(CKPT_LOG_NOTE, "waiting until the reader of standard output takes the paths of "
                 "checkpoints");
    while (waits(a)) {
        child_pause();
        print(a);
    }
    see_read(a);
    rc = a->failed;
    if (rc)
        *err = a->lost;
    else if (is_left(a) && first_unread(a))
        rc = ckpt_fail(err, CKPT_EIO, "standard output: its reader left, and did not take %s",
                       first_unread(a));
    drop_first(a, a->n);
    ckpt_free(a->item);
    ckpt_free(a);
    return rc;
}
