/* supervise - see supervise.h. */
#include "trainer/launch/supervise.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "libckpt/base/pool.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/control.h"
#include "trainer/launch/node.h"
#include "trainer/launch/verdict.h"

/* Seconds. */
#define AT_ONCE    1.0                  /* between two signals that are two requests */

static void signal_peer(const struct peer *p, int sig)
{
    if (p->pidfd >= 0 && !p->lost)
        pidfd_send_signal(p->pidfd, sig, NULL, 0);
}

static void signal_all(const struct watch *w, int sig)
{
    for (size_t i = 0; i < w->n; i++)
        signal_peer(&w->peer[i], sig);
}

/* Ctrl-Z: ranks are not of the terminal's group, so that they are stopped and go on with us. */
static void stop_a_while(struct watch *w)
{
    signal_all(w, SIGSTOP);
    raise(SIGSTOP);
    signal_all(w, SIGCONT);
    w->now = clock_now();
    watch_hear_all(w);
}

static void take_signal(struct watch *w, int sig)
{
    if (!w->asked) {
        w->asked = sig;
        w->asked_at = w->now;
        signal_all(w, sig);
    } else if ((sig == SIGINT || sig == SIGTERM) && watch_since(w, w->asked_at, AT_ONCE)) {
        w->at_once = true;
        ckpt_fail(&w->verdict, CKPT_ESTOPPED, "SIG%s again: all ranks were ended, unsaved "
                  "progress is lost", sigabbrev_np(sig));
        w->asked = sig;
    }
}

static void take_signals(struct watch *w)
{
    struct signalfd_siginfo s;

    while (read(w->t->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        int sig = (int)s.ssi_signo;

        if (sig == SIGTSTP)
            stop_a_while(w);
        else if (sig != SIGCHLD)
            take_signal(w, sig);
    }
}

/* The launcher passes signals on in lines. */
static void take_line(struct watch *w)
{
    char more[64];
    ssize_t n = read(w->o->line, more, sizeof more);
    size_t at = strlen(w->said);

    w->left = n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
    for (ssize_t i = 0; i < n; i++) {
        if (more[i] != '\n') {
            if (at + 1 < sizeof w->said)
                w->said[at++] = more[i];
            continue;
        }
        w->said[at] = '\0';
        at = 0;
        if (node_signal(w->said))
            take_signal(w, node_signal(w->said));
    }
    w->said[at] = '\0';
}

/* -- the watch itself ------------------------------------------------------------------------- */

static void look(struct watch *w)
{
    struct pollfd *f = w->poll;
    size_t n = 0;
    double before;

    f[n++] = (struct pollfd){.fd = w->t->signals, .events = POLLIN};
    f[n++] = (struct pollfd){.fd = w->o->place ? w->o->line : -1, .events = POLLIN};
    for (size_t i = 0; i < w->n; i++)
        f[n++] = (struct pollfd){.fd = w->launch.rank[i].control, .events = POLLIN};
    before = clock_now();
    poll(f, n, CONTROL_BEAT_MS / 2);
    w->now = clock_now();
    if (w->now - before > 1)            /* this process was held up: the others may have been */
        watch_hear_all(w);
    take_signals(w);
    if (f[1].revents)
        take_line(w);
    for (size_t i = 0; i < w->n; i++)
        watch_hear(w, i);
    launch_look(&w->launch);
}

static int watch_open(struct watch *w, struct ckpt_err *err)
{
    const struct launch_place *place = w->o->place;
    const struct launch_opts ranks = {.n = w->t->n, .argv = w->o->argv, .mask = w->t->mask,
                                      .saved = place ? place->saved : w->t->saved,
                                      .place = place};
    int rc;

    if (gethostname(w->host, sizeof w->host - 1))
        snprintf(w->host, sizeof w->host, "this host");
    w->n = (size_t)w->t->n;
    w->peer = ckpt_alloc(w->n, sizeof *w->peer);
    w->poll = ckpt_alloc(w->n + 2, sizeof *w->poll);
    if (!w->peer || !w->poll)
        return ckpt_nomem(err, w->n * (sizeof *w->peer + sizeof *w->poll));
    for (size_t i = 0; i < w->n; i++)
        w->peer[i] = (struct peer){.pidfd = -1, .phase = "start-up"};
    if ((rc = launch_start(&w->launch, &ranks, err)) != 0)
        return rc;
    w->now = clock_now();
    for (size_t i = 0; i < w->n; i++)
        w->peer[i].pidfd = pidfd_open(w->launch.rank[i].pid, 0);
    watch_hear_all(w);
    return 0;
}

static void watch_close(struct watch *w)
{
    launch_end(&w->launch);
    for (size_t i = 0; w->peer && i < w->n; i++) {
        if (w->peer[i].pidfd >= 0)
            close(w->peer[i].pidfd);
        ckpt_free(w->peer[i].err);
    }
    ckpt_free(w->peer);
    ckpt_free(w->poll);
}

/* Ranks share the CPUs that this process may use. */
static int check_cpus(int64_t n, struct ckpt_err *err)
{
    int cpus = (int)ckpt_pool_default(SIZE_MAX);
    int64_t most = cpus > 4 ? 4 * (int64_t)cpus : 16;

    if (n > most) {
        ckpt_fail(err, CKPT_ECONFIG, "`nproc %lld`: this host has %d CPU%s, for at most %lld ranks",
                  (long long)n, cpus, cpus == 1 ? "" : "s", (long long)most);
        return ckpt_err_hint(err, "`nproc %lld` at most, or more hosts", (long long)most);
    }
    if (n > cpus)
        ckpt_log(CKPT_LOG_WARNING, "%lld ranks share %d CPU%s", (long long)n, cpus,
                 cpus == 1 ? "" : "s");
    return 0;
}

/* One try. */
static int run(void *ctx, struct restart_end *end, const struct restart_try *t,
               struct ckpt_err *err)
{
    struct watch w = {.o = ctx, .t = t, .end = end};
    int rc = watch_open(&w, err);

    if (rc == 0) {
        do
            look(&w);
        while (!verdict_over(&w));
        verdict_settle(&w);
    }
    watch_close(&w);
    if (rc == 0 && w.o->ended)
        w.o->ended(w.o->ctx, end);
    return rc;
}

/* GPUs that are still there. */
static int64_t left(void *ctx, int64_t n)
{
    const struct supervise_opts *o = ctx;
    struct ckpt_err unknown = {0};
    int64_t gpus;

    return o->on_gpus && launch_gpus(&gpus, &unknown) == 0 && gpus < n ? gpus : n;
}

int supervise_run(int *status, const struct supervise_opts *o, struct ckpt_err *err)
{
    struct supervise_opts own = *o;
    const struct restart_opts tries = {.n = o->n, .max = o->max_restarts, .min = o->min_ranks,
                                       .ctx = &own, .run = run, .left = left,
                                       .tell_ctx = o->ctx, .tell = o->tell};
    int rc = check_cpus(o->n, err);

    return rc ? rc : restart_run(status, &tries, err);
}
