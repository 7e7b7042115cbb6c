/* supervise - see supervise.h. */
#include "trainer/comm/supervise.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/pool.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/control.h"
#include "trainer/clock.h"
#include "trainer/comm/launch.h"
#include "trainer/comm/node.h"

/* Seconds. */
#define STOPPED    2.5                  /* a stopped process is not waited for longer */
#define SILENT     60.0                 /* nor one that runs, but is never heard */
#define OTHERS     0.5                  /* after one failure, for the failures of others */
#define ECHO       5.0                  /* after one that says only that a peer has gone: here, */
#define ECHO_FAR   0.5                  /* or perhaps on another host */
#define START      5.0                  /* after a signal, for ranks that have yet to meet */
#define LEAVE      5.0                  /* after the last goodbye, until all processes have ended */
#define AT_ONCE    1.0                  /* between two signals that are two requests */

/* One rank, as it is heard. */
struct peer {
    int    pidfd;
    bool   bye, lost, agreed;
    int    status;                      /* with bye */
    double heard, lost_at;
    char   phase[96];
    uint64_t progress, collectives;     /* as the rank said them last */
    double moved;                       /* when progress went up */
    char   last[32];                    /* collective that it began */
    struct ckpt_err *err;               /* its own failure, or NULL */
};

struct watch {
    const struct supervise_opts *o;
    const struct restart_try    *t;
    struct restart_end          *end;
    struct launch launch;
    struct peer  *peer;                 /* [n] */
    size_t        n;
    struct pollfd *poll;                /* [n + 2] */
    int           asked;                /* the signal that was passed on; 0: none */
    bool          at_once;              /* a second one came */
    bool          left;                 /* the launcher of several hosts is gone */
    bool          killed;               /* a rank was, by a signal of nobody here */
    char          said[32];             /* by the launcher: the line so far */
    char          host[65];             /* this one's name */
    double        now;
    double        asked_at, failed_at, echo_at, quiet_at;       /* 0: not yet */
    struct ckpt_err verdict;            /* what the supervisor itself found */
};

static bool since(const struct watch *w, double then, double seconds)
{
    return then > 0 && w->now - then >= seconds;
}

/* 'R', 'S', 'D', 'T', ...; 0: there is no such process. */
static char state_of(pid_t pid)
{
    char path[64], text[512] = "", *tail;
    FILE *f;

    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    f = fopen(path, "re");
    if (!f)
        return 0;
    tail = fgets(text, sizeof text, f) ? strrchr(text, ')') : NULL;
    fclose(f);
    return (char)(tail && tail[1] ? tail[2] : 0);
}

/* -- ranks ------------------------------------------------------------------------------------ */

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

/* A peer that died is no reason where another failure is. */
static bool follows(const struct peer *p) { return p->err->code == CKPT_ECOMM; }

static void failed(struct watch *w, struct peer *p, const struct control_message *m)
{
    if (p->err)
        return;                         /* the first says why */
    p->err = ckpt_alloc(1, sizeof *p->err);
    if (!p->err)
        return;
    *p->err = m->err;
    p->agreed = m->value != 0;
    if (p->agreed)
        return;                         /* all leave by themselves */
    if (follows(p) && w->echo_at == 0)
        w->echo_at = w->now;
    else if (!follows(p) && w->failed_at == 0)
        w->failed_at = w->now;
}

static void lose(struct watch *w, size_t r)
{
    struct peer *p = &w->peer[r];

    close(w->launch.rank[r].control);
    w->launch.rank[r].control = -1;
    if (!p->bye && p->err) {            /* it said why */
        p->bye = true;
        p->status = ckpt_err_status(p->err->code);
    } else if (!p->bye) {
        p->lost = true;
        p->lost_at = w->now;
    }
}

static void beat(const struct watch *w, struct peer *p, const struct control_message *m)
{
    if (m->progress != p->progress)
        p->moved = w->now;
    p->progress = m->progress;
    p->collectives = m->collectives;
    ckpt_err_escape(p->last, sizeof p->last, m->text, strlen(m->text));
}

static void count_step(struct restart_end *end, const struct control_message *m)
{
    if (m->value == CONTROL_TRAIN && m->step > end->step)
        end->step = m->step;
    else if (m->value == CONTROL_SAVE && end->saving < 0)
        end->saving = m->step;
    else if (m->value == CONTROL_SAVED && m->step > end->saved)
        end->saved = m->step;
}

static void message(struct watch *w, struct peer *p, struct control_message *m)
{
    m->text[sizeof m->text - 1] = '\0';
    m->err.text[sizeof m->err.text - 1] = m->err.hint[sizeof m->err.hint - 1] = '\0';
    m->err.reason[sizeof m->err.reason - 1] = '\0';
    p->heard = w->now;
    if (m->kind == CONTROL_BEAT) {
        beat(w, p, m);
    } else if (m->kind == CONTROL_PHASE) {
        if (m->text[0])
            ckpt_err_escape(p->phase, sizeof p->phase, m->text, strlen(m->text));
        count_step(w->end, m);
    } else if (m->kind == CONTROL_ERROR) {
        failed(w, p, m);
    } else if (m->kind == CONTROL_BYE) {
        p->bye = true;
        p->status = m->value;
    }
}

static void listen_to(struct watch *w, size_t r)
{
    struct control_message m;
    ssize_t n;

    while (w->launch.rank[r].control >= 0) {
        n = recv(w->launch.rank[r].control, &m, sizeof m, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)sizeof m || m.version != CONTROL_VERSION)
            lose(w, r);
        else
            message(w, &w->peer[r], &m);
    }
}

/* -- signals ---------------------------------------------------------------------------------- */

/* What was not heard while this process was held up is no silence. */
static void hear_all(struct watch *w)
{
    for (size_t i = 0; i < w->n; i++)
        w->peer[i].heard = w->peer[i].moved = w->now;
}

/* Ctrl-Z: ranks are not of the terminal's group, so that they are stopped and go on with us. */
static void stop_a_while(struct watch *w)
{
    signal_all(w, SIGSTOP);
    raise(SIGSTOP);
    signal_all(w, SIGCONT);
    w->now = clock_now();
    hear_all(w);
}

static void take_signal(struct watch *w, int sig)
{
    if (!w->asked) {
        w->asked = sig;
        w->asked_at = w->now;
        signal_all(w, sig);
    } else if ((sig == SIGINT || sig == SIGTERM) && since(w, w->asked_at, AT_ONCE)) {
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

/* -- judging ---------------------------------------------------------------------------------- */

/* A rank of those here, by its number among all. */
static long long rank_of(const struct watch *w, size_t r)
{
    return (long long)(w->o->place ? w->o->place->first : 0) + (long long)r;
}

static int go_on_hint(struct ckpt_err *err)
{
    return ckpt_err_hint(err, "go on with `resume_from_checkpoint latest`");
}

/* A crash is a fault of the program, and worth a report, even where another try is made. */
static bool another_try_helps(int sig)
{
    return sig != SIGSEGV && sig != SIGBUS && sig != SIGILL && sig != SIGFPE && sig != SIGABRT;
}

/* A rank has gone without a goodbye. */
static void tell_lost(struct watch *w, size_t r)
{
    const struct launch_rank *l = &w->launch.rank[r];
    long long rank = rank_of(w, r);
    int sig = l->ended && WIFSIGNALED(l->status) ? WTERMSIG(l->status) : 0;
    char how[64] = "closed its connection";

    if (sig)
        snprintf(how, sizeof how, "killed by SIG%s", sigabbrev_np(sig) ? sigabbrev_np(sig) : "?");
    else if (l->ended)
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(l->status));
    w->killed = sig != 0;
    ckpt_fail_as(&w->verdict, another_try_helps(sig) ? CKPT_ECOMM : CKPT_ESTATE, "peer-dead",
                 "rank %lld on %s, process %ld: %s in: %s", rank, w->host, (long)l->pid, how,
                 w->peer[r].phase);
    if (sig == SIGKILL)
        ckpt_err_hint(&w->verdict, "the system may be out of memory (see dmesg); go on with "
                      "`resume_from_checkpoint latest`");
    else if (another_try_helps(sig))
        go_on_hint(&w->verdict);
}

/* A rank that is there, but is not heard. */
static bool tell_silent(struct watch *w, size_t r)
{
    const struct peer *p = &w->peer[r];
    pid_t pid = w->launch.rank[r].pid;
    char state = state_of(pid);
    bool stopped = state == 'T';

    if (!stopped && (state == 't' || state == 'Z' || !since(w, p->heard, SILENT)))
        return false;                   /* under a debugger, ending, or only slow */
    ckpt_fail_as(&w->verdict, CKPT_ECOMM, "peer-dead",
                 "rank %lld on %s, process %ld: %s, not heard for %.0f s, in: %s", rank_of(w, r),
                 w->host, (long)pid, stopped ? "stopped" : "hangs", w->now - p->heard, p->phase);
    go_on_hint(&w->verdict);
    return true;
}

/* Whether a rank that is lost or silent ends the run. */
static bool judge_ranks(struct watch *w)
{
    size_t first = w->n;                /* that was lost */

    for (size_t i = 0; i < w->n; i++) {
        const struct peer *p = &w->peer[i];

        if (p->bye || w->failed_at > 0)
            continue;
        if (p->lost && (first == w->n || p->lost_at < w->peer[first].lost_at))
            first = i;
        if (!p->lost && since(w, p->heard, STOPPED) && tell_silent(w, i))
            return true;
    }
    if (first == w->n ||
        (!w->launch.rank[first].ended && !since(w, w->peer[first].lost_at, OTHERS)))
        return false;
    tell_lost(w, first);
    return true;
}

/* All wait for one that is behind, or each for a device: no rank has come further for as long as
 * ranks wait for each other.  Ranks of several hosts find that out by themselves (pulse.h). */
static bool judge_progress(struct watch *w)
{
    size_t behind = w->n, ahead = w->n;
    char waits[96] = "";

    if (w->o->place || w->o->patience <= 0)
        return false;
    for (size_t i = 0; i < w->n; i++) {
        const struct peer *p = &w->peer[i];

        if (p->bye || p->lost)
            continue;
        if (!since(w, p->moved, w->o->patience))
            return false;
        if (behind == w->n || p->collectives < w->peer[behind].collectives)
            behind = i;
        if (ahead == w->n || p->collectives > w->peer[ahead].collectives)
            ahead = i;
    }
    if (behind == w->n)
        return false;
    if (w->peer[ahead].collectives > w->peer[behind].collectives)
        snprintf(waits, sizeof waits, "; rank %lld waits in %s", rank_of(w, ahead),
                 w->peer[ahead].last);
    ckpt_fail_as(&w->verdict, CKPT_ECOMM, "peer-dead",
                 "rank %lld on %s, process %ld: no progress for %.0f s in: %s%s",
                 rank_of(w, behind), w->host, (long)w->launch.rank[behind].pid, w->o->patience,
                 w->peer[behind].phase, waits);
    ckpt_err_hint(&w->verdict, "`ddp_timeout` is the limit; go on with "
                  "`resume_from_checkpoint latest`");
    return true;
}

/* Ranks that still wait for each other look at no signal, and have nothing to lose. */
static bool judge_start(struct watch *w)
{
    if (!since(w, w->asked_at, START))
        return false;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->peer[i].phase, "start-up") != 0 || w->peer[i].bye)
            return false;
    ckpt_fail(&w->verdict, CKPT_ESTOPPED, "SIG%s in: start-up: ended, nothing was begun",
              sigabbrev_np(w->asked));
    return true;
}

/* Whether all is over; what is found goes to the verdict. */
static bool over(struct watch *w)
{
    bool all_bye = true, all_ended = true;

    for (size_t i = 0; i < w->n; i++) {
        all_bye &= w->peer[i].bye;
        all_ended &= w->launch.rank[i].ended;
    }
    if (all_bye && w->quiet_at == 0)
        w->quiet_at = w->now;
    if (w->at_once || w->left || since(w, w->failed_at, OTHERS) ||
        since(w, w->echo_at, w->o->place ? ECHO_FAR : ECHO) || judge_ranks(w) ||
        judge_progress(w) || judge_start(w))
        return true;
    return all_bye && (all_ended || since(w, w->quiet_at, LEAVE));
}

/* -- what is printed -------------------------------------------------------------------------- */

static const char *plain(const char *text)
{
    const char *colon = strncmp(text, "rank ", 5) == 0 ? strstr(text, ": ") : NULL;

    return colon ? colon + 2 : text;
}

/* One line for each failure, once for several ranks with the same.  Gives the first's status, and
 * whether another try may help against it. */
static int tell_failures(struct watch *w)
{
    bool cause = w->verdict.code != 0;
    int status = 0;

    for (size_t i = 0; i < w->n; i++)
        cause |= w->peer[i].err && !follows(&w->peer[i]);
    for (size_t i = 0; i < w->n; i++) {
        struct peer *p = &w->peer[i];
        struct ckpt_err told;
        size_t same = 0;

        if (!p->err || (cause && follows(p)))
            continue;
        told = *p->err;
        for (size_t j = i + 1; j < w->n; j++) {
            struct peer *q = &w->peer[j];

            if (!q->err || strcmp(plain(q->err->text), plain(told.text)) != 0)
                continue;
            ckpt_free(q->err);
            q->err = NULL;
            same++;
        }
        if (same) {
            const char *text = plain(told.text);

            memmove(told.text, text, strlen(text) + 1);
            ckpt_err_in(&told, "rank %lld and %zu other%s", rank_of(w, i), same,
                        same > 1 ? "s" : "");
        } else if (!p->agreed && strncmp(told.text, "rank ", 5) != 0) {
            ckpt_err_in(&told, "rank %lld", rank_of(w, i));
        }
        restart_tell(w->end, &told);
        if (status == 0)
            w->end->again = told.code == CKPT_ECOMM;
        status = status ? status : ckpt_err_status(told.code);
    }
    return status;
}

/* The run's status: of a failure, of what the supervisor found, of the ranks themselves. */
static void settle(struct watch *w)
{
    int status = tell_failures(w);

    if (w->verdict.code && (status == 0 || w->at_once)) {
        restart_tell(w->end, &w->verdict);
        w->end->again = w->verdict.code == CKPT_ECOMM || w->killed;
        status = w->at_once ? 128 + w->asked : ckpt_err_status(w->verdict.code);
    }
    for (size_t i = 0; i < w->n && status == 0; i++)
        status = w->peer[i].status;
    if (w->left && status == 0)
        status = ckpt_err_status(CKPT_ECOMM);
    w->end->again &= !w->asked && !w->left;
    w->end->status = status;
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
        hear_all(w);
    take_signals(w);
    if (f[1].revents)
        take_line(w);
    for (size_t i = 0; i < w->n; i++)
        listen_to(w, i);
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
    hear_all(w);
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
        while (!over(&w));
        settle(&w);
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
