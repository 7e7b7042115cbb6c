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

/* Seconds. */
#define STOPPED    2.5                  /* a stopped process is not waited for longer */
#define SILENT     60.0                 /* nor one that runs, but is never heard */
#define OTHERS     0.5                  /* after one failure, for the failures of others */
#define ECHO       5.0                  /* after one that says only that a peer has gone */
#define LEAVE      5.0                  /* after the last goodbye, until all processes have ended */
#define AT_ONCE    1.0                  /* between two signals that are two requests */

/* One rank, as it is heard. */
struct peer {
    int    pidfd;
    bool   bye, lost, agreed;
    int    status;                      /* with bye */
    double heard, lost_at;
    char   phase[96];
    struct ckpt_err *err;               /* its own failure, or NULL */
};

struct watch {
    const struct supervise_opts *o;
    struct launch launch;
    struct peer  *peer;                 /* [n] */
    size_t        n;
    struct pollfd *poll;                /* [n + 1] */
    int           signals;              /* a signalfd */
    int           asked;                /* the signal that was passed on; 0: none */
    bool          at_once;              /* a second one came */
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
    if (!p->bye) {
        p->lost = true;
        p->lost_at = w->now;
    }
}

static void message(struct watch *w, struct peer *p, struct control_message *m)
{
    m->text[sizeof m->text - 1] = '\0';
    m->err.text[sizeof m->err.text - 1] = m->err.hint[sizeof m->err.hint - 1] = '\0';
    m->err.reason[sizeof m->err.reason - 1] = '\0';
    p->heard = w->now;
    if (m->kind == CONTROL_PHASE) {
        ckpt_err_escape(p->phase, sizeof p->phase, m->text, strlen(m->text));
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

/* Ctrl-Z: ranks are not of the terminal's group, so that they are stopped and go on with us. */
static void stop_a_while(struct watch *w)
{
    signal_all(w, SIGSTOP);
    raise(SIGSTOP);
    signal_all(w, SIGCONT);
    w->now = clock_now();
    for (size_t i = 0; i < w->n; i++)
        w->peer[i].heard = w->now;
}

static void take_signals(struct watch *w)
{
    struct signalfd_siginfo s;

    while (read(w->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        int sig = (int)s.ssi_signo;

        if (sig == SIGCHLD)
            continue;
        if (sig == SIGTSTP) {
            stop_a_while(w);
        } else if (!w->asked) {
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
}

/* -- judging ---------------------------------------------------------------------------------- */

static int go_on_hint(struct ckpt_err *err)
{
    return ckpt_err_hint(err, "go on with `resume_from_checkpoint latest`");
}

static bool another_try_helps(int sig)
{
    return sig != SIGSEGV && sig != SIGBUS && sig != SIGILL && sig != SIGFPE && sig != SIGABRT;
}

/* A rank has gone without a goodbye. */
static void tell_lost(struct watch *w, size_t r)
{
    const struct launch_rank *l = &w->launch.rank[r];
    int sig = l->ended && WIFSIGNALED(l->status) ? WTERMSIG(l->status) : 0;
    char how[64] = "closed its connection";

    if (sig)
        snprintf(how, sizeof how, "killed by SIG%s", sigabbrev_np(sig) ? sigabbrev_np(sig) : "?");
    else if (l->ended)
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(l->status));
    ckpt_fail_as(&w->verdict, another_try_helps(sig) ? CKPT_ECOMM : CKPT_ESTATE, "peer-dead",
                 "rank %zu on %s, process %ld: %s in: %s", r, w->host, (long)l->pid, how,
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
                 "rank %zu on %s, process %ld: %s, not heard for %.0f s, in: %s", r, w->host,
                 (long)pid, stopped ? "stopped" : "hangs", w->now - p->heard, p->phase);
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
    if (w->at_once || since(w, w->failed_at, OTHERS) || since(w, w->echo_at, ECHO) ||
        judge_ranks(w))
        return true;
    return all_bye && (all_ended || since(w, w->quiet_at, LEAVE));
}

/* -- what is printed -------------------------------------------------------------------------- */

static const char *plain(const char *text)
{
    const char *colon = strncmp(text, "rank ", 5) == 0 ? strstr(text, ": ") : NULL;

    return colon ? colon + 2 : text;
}

/* One line for each failure, once for several ranks with the same.  Gives the first's status. */
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
            ckpt_err_in(&told, "rank %zu and %zu other%s", i, same, same > 1 ? "s" : "");
        } else if (!p->agreed && strncmp(told.text, "rank ", 5) != 0) {
            ckpt_err_in(&told, "rank %zu", i);
        }
        w->o->tell(w->o->ctx, &told);
        status = status ? status : ckpt_err_status(told.code);
    }
    return status;
}

/* The run's status: of a failure, of what the supervisor found, of the ranks themselves. */
static int settle(struct watch *w)
{
    int status = tell_failures(w);

    if (w->verdict.code && (status == 0 || w->at_once)) {
        w->o->tell(w->o->ctx, &w->verdict);
        status = w->at_once ? 128 + w->asked : ckpt_err_status(w->verdict.code);
    }
    for (size_t i = 0; i < w->n && status == 0; i++)
        status = w->peer[i].status;
    return status;
}

/* -- the watch itself ------------------------------------------------------------------------- */

static void look(struct watch *w)
{
    struct pollfd *f = w->poll;
    size_t n = 0;
    double before;

    f[n++] = (struct pollfd){.fd = w->signals, .events = POLLIN};
    for (size_t i = 0; i < w->n; i++)
        f[n++] = (struct pollfd){.fd = w->launch.rank[i].control, .events = POLLIN};
    before = clock_now();
    poll(f, n, CONTROL_BEAT_MS / 2);
    w->now = clock_now();
    if (w->now - before > 1)            /* this process was held up: the others may have been */
        for (size_t i = 0; i < w->n; i++)
            w->peer[i].heard = w->now;
    take_signals(w);
    for (size_t i = 0; i < w->n; i++)
        listen_to(w, i);
    launch_look(&w->launch);
}

static int watch_open(struct watch *w, sigset_t *was, struct ckpt_err *err)
{
    static const int mine[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
    sigset_t set;
    int rc;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
        sigaddset(&set, mine[i]);
    sigprocmask(SIG_BLOCK, &set, was);
    if (gethostname(w->host, sizeof w->host - 1))
        snprintf(w->host, sizeof w->host, "this host");
    w->n = (size_t)w->o->n;
    w->peer = ckpt_alloc(w->n, sizeof *w->peer);
    w->poll = ckpt_alloc(w->n + 1, sizeof *w->poll);
    if (!w->peer || !w->poll)
        return ckpt_nomem(err, w->n * (sizeof *w->peer + sizeof *w->poll));
    for (size_t i = 0; i < w->n; i++)
        w->peer[i] = (struct peer){.pidfd = -1, .phase = "start-up"};
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signals < 0)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a descriptor for signals");
    if ((rc = launch_start(&w->launch, w->o->n, w->o->argv, was, err)) != 0)
        return rc;
    w->now = clock_now();
    for (size_t i = 0; i < w->n; i++) {
        w->peer[i].pidfd = pidfd_open(w->launch.rank[i].pid, 0);
        w->peer[i].heard = w->now;
    }
    return 0;
}

static void watch_close(struct watch *w, const sigset_t *was)
{
    launch_end(&w->launch);
    for (size_t i = 0; w->peer && i < w->n; i++) {
        if (w->peer[i].pidfd >= 0)
            close(w->peer[i].pidfd);
        ckpt_free(w->peer[i].err);
    }
    if (w->signals >= 0)
        close(w->signals);
    ckpt_free(w->peer);
    ckpt_free(w->poll);
    sigprocmask(SIG_SETMASK, was, NULL);
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

int supervise_run(int *status, const struct supervise_opts *o, struct ckpt_err *err)
{
    struct watch w = {.o = o, .signals = -1};
    sigset_t was;
    int rc;

    if ((rc = check_cpus(o->n, err)) != 0)
        return rc;
    rc = watch_open(&w, &was, err);
    if (rc == 0) {
        do
            look(&w);
        while (!over(&w));
        *status = settle(&w);
    }
    watch_close(&w, &was);
    return rc;
}
