/* cli_ahead - see cli_ahead.h. */
#include "tools/cli_ahead.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/mem.h"
#include "tools/cli.h"

#define MOST     256u           /* most waiting paths: each has a lease, a descriptor */
#define LOOK_MS  100            /* longest time until a signal is noticed */

struct waiting {
    char             *path;
    struct ckpt_lock *lease;
};

struct cli_ahead {
    pthread_t        thread;
    pthread_mutex_t  lock;
    pthread_cond_t   changed;
    struct waiting   item[MOST];        /* a ring */
    size_t           first, n;
    bool             ended, quit;
    int              failed;            /* code of err, which ended reading; reported after the
                                           items before it; 0: the end of the pipe */
    struct ckpt_err  err;
    int              pipe[2];           /* closing [1] wakes the thread */
    struct cli_lines lines;
};

/* Put a leased path into the ring, once there is space. */
static void put(struct cli_ahead *a, struct waiting w)
{
    pthread_mutex_lock(&a->lock);
    while (a->n == MOST && !a->quit)
        pthread_cond_wait(&a->changed, &a->lock);
    if (a->quit) {
        ckpt_lock_release(w.lease);
        ckpt_free(w.path);
    } else {
        a->item[(a->first + a->n++) % MOST] = w;
        pthread_cond_signal(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}

static void *read_all(void *ctx)
{
    struct cli_ahead *a = ctx;
    struct ckpt_err err = {0};
    bool more = true;
    int rc;

    while ((rc = cli_lines_next(&a->lines, &more, &err)) == 0 && more) {
        struct waiting w = {.path = ckpt_strdup(a->lines.line)};

        if (!w.path) {
            rc = ckpt_nomem(&err, CLI_MAX_LINE);
            break;
        }
        w.lease = ckpt_lock_reader(w.path);
        put(a, w);
    }
    pthread_mutex_lock(&a->lock);
    a->failed = rc;
    a->err = err;
    a->ended = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

/* The thread blocks signals, so that they interrupt the main thread's waiting. */
static int start_thread(struct cli_ahead *a)
{
    sigset_t all, was;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &was);
    rc = pthread_create(&a->thread, NULL, read_all, a);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return rc;
}

int cli_ahead_start(struct cli_ahead **out, int end, const unsigned char *head, size_t n,
                    struct ckpt_err *err)
{
    struct cli_ahead *a = ckpt_alloc(1, sizeof *a);
    pthread_condattr_t attr;

    *out = NULL;
    if (!a)
        return ckpt_nomem(err, sizeof *a);
    if (pipe(a->pipe)) {
        ckpt_free(a);
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "pipe");
    }
    fcntl(a->pipe[0], F_SETFD, FD_CLOEXEC);
    fcntl(a->pipe[1], F_SETFD, FD_CLOEXEC);
    a->lines.end = end;
    a->lines.quit = a->pipe[0];
    a->lines.head = head;
    a->lines.n_head = n;
    cli_lines_peek(&a->lines);
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &attr);
    pthread_condattr_destroy(&attr);
    if (start_thread(a)) {
        cli_lines_end(&a->lines);
        close(a->pipe[0]);
        close(a->pipe[1]);
        ckpt_free(a);
        return ckpt_fail(err, CKPT_ENOMEM, "no thread can be started to read standard input");
    }
    *out = a;
    return 0;
}

bool cli_ahead_waits(struct cli_ahead *a)
{
    bool waits;

    pthread_mutex_lock(&a->lock);
    waits = a->n > 0;
    pthread_mutex_unlock(&a->lock);
    return waits;
}

static void wait_a_moment(struct cli_ahead *a)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000L;
    }
    pthread_cond_timedwait(&a->changed, &a->lock, &until);
}

int cli_ahead_next(struct cli_ahead *a, char **path, struct ckpt_lock **lease,
                   struct ckpt_err *err)
{
    int rc = 0;

    *path = NULL;
    *lease = NULL;
    pthread_mutex_lock(&a->lock);
    while (a->n == 0 && !a->ended && !cli_stop)
        wait_a_moment(a);
    if (cli_stop && !(a->n == 0 && a->ended)) {
        rc = cli_stopped(err);
    } else if (a->n > 0) {
        *path = a->item[a->first].path;
        *lease = a->item[a->first].lease;
        a->first = (a->first + 1) % MOST;
        a->n--;
        pthread_cond_signal(&a->changed);
    } else if (a->failed) {
        *err = a->err;
        rc = a->failed;
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

void cli_ahead_end(struct cli_ahead *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->quit = true;
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
    close(a->pipe[1]);
    pthread_join(a->thread, NULL);
    cli_lines_end(&a->lines);
    close(a->pipe[0]);
    for (; a->n > 0; a->n--, a->first = (a->first + 1) % MOST) {
        ckpt_lock_release(a->item[a->first].lease);
        ckpt_free(a->item[a->first].path);
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    ckpt_free(a);
}
