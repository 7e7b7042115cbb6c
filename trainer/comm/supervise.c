/* supervise - see supervise.h. */
#include "trainer/comm/supervise.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/comm/control.h"
#include "trainer/clock.h"
#include "trainer/comm/launch.h"

/* Seconds. */
#define STOPPED    2.5                  /* a stopped process is not waited for longer */
#define SILENT     60.0                 /* nor one that runs, but is never heard */
#define START      120.0                /* until every rank has said hello */
#define OTHERS     0.5                  /* after one failure, for the failures of others */
#define NOTICED    0.4                  /* after a rank is lost: mpirun knows it */
#define REASON     2.5                  /* after that, until mpirun ends and names the signal */
#define LEAVE      5.0                  /* after the last goodbye, until mpirun ends */
#define AT_ONCE    1.0                  /* between two signals that are two requests */

#define STRANGERS  16                   /* connections that have not said hello */

/* One connection: a stranger (rank < 0) until its hello. */
struct peer {
    int    fd, pidfd, rank;
    pid_t  pid;
    bool   bye, lost, agreed;
    int    status;                      /* with bye */
    double heard, lost_at;
    char   host[64], phase[96];
    struct ckpt_err *err;               /* its own failure, or NULL */
};

struct watch {
    const struct supervise_opts *o;
    struct launch launch;
    struct peer  *peer;                 /* [n_max], ranks and strangers; fd < 0: a free place
                                           unless it is a rank */
    size_t        n, n_max;
    struct pollfd *poll;
    int           signals;              /* a signalfd */
    int           asked;                /* the signal that was passed on; 0: none */
    bool          at_once;              /* a second one came */
    double        start, now;
    double        asked_at, failed_at, echo_at, quiet_at, ended_at;     /* 0: not yet */
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
        if (w->peer[i].rank >= 0)
            signal_peer(&w->peer[i], sig);
}

/* None has anything left to do. */
static void kill_all(const struct watch *w)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->peer[i].rank >= 0 && !w->peer[i].bye)
            signal_peer(&w->peer[i], SIGKILL);
}

static void drop(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

/* The answer to a hello: where the rank prints, and what rank 0 reads. */
static bool welcome(const struct peer *p)
{
    union { char bytes[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } ancillary = {{0}};
    struct control_message m = {.kind = CONTROL_WELCOME, .version = CONTROL_VERSION};
    const int fd[3] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
    size_t skip = p->rank != 0, bytes = (3 - skip) * sizeof(int);
    struct iovec part = {.iov_base = &m, .iov_len = sizeof m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = ancillary.bytes,
                       .msg_controllen = CMSG_SPACE(bytes)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&h);

    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(c), fd + skip, bytes);
    return sendmsg(p->fd, &h, MSG_NOSIGNAL) == (ssize_t)sizeof m;
}

static void hello(struct watch *w, struct peer *p, const struct control_message *m)
{
    bool known = false;

    for (size_t i = 0; i < w->n; i++)
        known |= w->peer[i].rank == m->rank;
    if (p->rank >= 0 || known || m->version != CONTROL_VERSION || m->rank < 0 ||
        m->rank >= w->o->n || strcmp(m->word, w->launch.word) != 0) {
        drop(p);
        return;
    }
    p->rank = m->rank;
    p->pidfd = pidfd_open(p->pid, 0);
    snprintf(p->host, sizeof p->host, "%.*s", (int)sizeof p->host - 1, m->text);
    if (!welcome(p))
        p->heard = 0;                   /* its end is noticed as any other's */
    if (w->asked)
        signal_peer(p, w->asked);
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

static void lose(struct watch *w, struct peer *p)
{
    drop(p);
    if (p->rank >= 0 && !p->bye && !p->lost) {
        p->lost = true;
        p->lost_at = w->now;
    }
}

static void message(struct watch *w, struct peer *p, struct control_message *m)
{
    m->word[sizeof m->word - 1] = m->text[sizeof m->text - 1] = '\0';
    m->err.text[sizeof m->err.text - 1] = m->err.hint[sizeof m->err.hint - 1] = '\0';
    m->err.reason[sizeof m->err.reason - 1] = '\0';
    p->heard = w->now;
    if (m->kind == CONTROL_HELLO) {
        hello(w, p, m);
    } else if (p->rank < 0) {
        drop(p);
    } else if (m->kind == CONTROL_PHASE) {
        ckpt_err_escape(p->phase, sizeof p->phase, m->text, strlen(m->text));
    } else if (m->kind == CONTROL_ERROR) {
        failed(w, p, m);
    } else if (m->kind == CONTROL_BYE) {
        p->bye = true;
        p->status = m->value;
    }
}

static void listen_to(struct watch *w, struct peer *p)
{
    struct control_message m;
    ssize_t n;

    while (p->fd >= 0) {
        n = recv(p->fd, &m, sizeof m, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n != (ssize_t)sizeof m)
            lose(w, p);
        else
            message(w, p, &m);
    }
}

static void take_strangers(struct watch *w)
{
    int fd;

    assert(w->peer);
    while ((fd = accept4(w->launch.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        struct ucred who = {.uid = (uid_t)-1};
        socklen_t size = sizeof who;
        struct peer *p = NULL;

        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size);
        for (size_t i = 0; i < w->n && !p; i++)
            if (w->peer[i].fd < 0 && w->peer[i].rank < 0)
                p = &w->peer[i];
        if (!p && w->n < w->n_max)
            p = &w->peer[w->n++];
        if (!p || who.uid != geteuid()) {
            close(fd);
            continue;
        }
        *p = (struct peer){.fd = fd, .pidfd = -1, .rank = -1, .pid = who.pid, .heard = w->now};
        snprintf(p->phase, sizeof p->phase, "start-up");
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

static size_t count_of(const struct watch *w, bool bye)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n; i++)
        n += w->peer[i].rank >= 0 && (!bye || w->peer[i].bye);
    return n;
}

static int go_on_hint(struct ckpt_err *err)
{
    return ckpt_err_hint(err, "go on with `resume_from_checkpoint latest`");
}

static bool another_try_helps(int sig)
{
    return sig != SIGSEGV && sig != SIGBUS && sig != SIGILL && sig != SIGFPE && sig != SIGABRT;
}

static void tell_no_ranks(struct watch *w)
{
    int status = w->launch.status, sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    char quote[512], how[64];

    launch_quote(&w->launch, quote, sizeof quote);
    snprintf(how, sizeof how, "with status %d", WEXITSTATUS(status));
    if (sig)
        snprintf(how, sizeof how, "by SIG%s", sigabbrev_np(sig));
    ckpt_fail(&w->verdict, sig ? CKPT_ECOMM : CKPT_EDEVICE, "mpirun ended %s, with %zu of %lld "
              "ranks started%s%s", how, count_of(w, false), (long long)w->o->n,
              *quote ? ": " : "", quote);
}

/* A rank has gone without a goodbye; mpirun ends with 128 and the number of the signal. */
static void tell_lost(struct watch *w, const struct peer *p)
{
    int status = w->launch.ended && WIFEXITED(w->launch.status) ? WEXITSTATUS(w->launch.status)
                                                                : 0;
    int sig = status > 128 && status < 128 + 65 ? status - 128 : 0;
    const char *name = sig ? sigabbrev_np(sig) : NULL;
    char how[64] = "ended without a word", quote[512] = "";

    if (name)
        snprintf(how, sizeof how, "killed by SIG%s", name);
    else if (status)
        snprintf(how, sizeof how, "ended with status %d", status);
    if (!name && strcmp(p->phase, "start-up") == 0)     /* as MPI ends what it cannot start */
        launch_quote(&w->launch, quote, sizeof quote);
    ckpt_fail_as(&w->verdict, *quote ? CKPT_EDEVICE
                              : another_try_helps(sig) ? CKPT_ECOMM : CKPT_ESTATE, "peer-dead",
                 "rank %d on %s, process %ld: %s in: %s%s%s", p->rank, p->host, (long)p->pid, how,
                 p->phase, *quote ? ": " : "", quote);
    if (sig == SIGKILL)
        ckpt_err_hint(&w->verdict, "the system may be out of memory (see dmesg); go on with "
                      "`resume_from_checkpoint latest`");
    else if (another_try_helps(sig) && !*quote)
        go_on_hint(&w->verdict);
}

/* A rank that is there, but is not heard. */
static bool tell_silent(struct watch *w, const struct peer *p)
{
    char state = state_of(p->pid);
    bool stopped = state == 'T';

    if (!stopped && (state == 't' || state == 'Z' || !since(w, p->heard, SILENT)))
        return false;                   /* under a debugger, ending, or only slow */
    ckpt_fail_as(&w->verdict, CKPT_ECOMM, "peer-dead",
                 "rank %d on %s, process %ld: %s, not heard for %.0f s, in: %s", p->rank, p->host,
                 (long)p->pid, stopped ? "stopped" : "hangs", w->now - p->heard, p->phase);
    go_on_hint(&w->verdict);
    return true;
}

/* Whether a rank that is lost or silent ends the run; *open: some are still connected. */
static bool judge_ranks(struct watch *w, bool *open)
{
    const struct peer *first = NULL;    /* that was lost */

    for (size_t i = 0; i < w->n; i++) {
        const struct peer *p = &w->peer[i];

        *open |= p->rank >= 0 && p->fd >= 0;
        if (p->rank < 0 || p->bye || w->failed_at > 0)
            continue;
        if (p->lost && (!first || p->lost_at < first->lost_at))
            first = p;
        if (!p->lost && since(w, p->heard, STOPPED) && tell_silent(w, p))
            return true;
    }
    if (!first)
        return false;
    if (since(w, first->lost_at, NOTICED))
        kill_all(w);                    /* mpirun waits for them */
    if (!w->launch.ended && !since(w, first->lost_at, REASON))
        return false;
    if (w->launch.ended && WIFSIGNALED(w->launch.status))
        tell_no_ranks(w);               /* ranks do not outlive mpirun */
    else
        tell_lost(w, first);
    return true;
}

/* Whether all is over; what is found goes to the verdict. */
static bool over(struct watch *w)
{
    size_t there = count_of(w, false), n = (size_t)w->o->n;
    bool open = false, all_bye = count_of(w, true) == n;

    if (w->launch.ended && w->ended_at == 0)
        w->ended_at = w->now;
    if (all_bye && w->quiet_at == 0)
        w->quiet_at = w->now;
    if (w->at_once || since(w, w->failed_at, OTHERS) || since(w, w->echo_at, 2 * REASON) ||
        judge_ranks(w, &open))
        return true;
    if (all_bye)
        return w->launch.ended || since(w, w->quiet_at, LEAVE);
    if (w->launch.ended && (!open || since(w, w->ended_at, AT_ONCE))) {
        if (w->failed_at == 0)
            tell_no_ranks(w);
        return true;
    }
    if (there < n && w->failed_at == 0 && since(w, w->start, START)) {
        ckpt_fail(&w->verdict, CKPT_ECOMM, "%zu of %zu ranks have started after %.0f s", there, n,
                  START);
        return true;
    }
    return false;
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
    for (int64_t r = 0; r < w->o->n; r++)
        for (size_t i = 0; i < w->n; i++) {
            struct peer *p = &w->peer[i];
            struct ckpt_err told;
            size_t same = 0;

            if (p->rank != r || !p->err || (cause && follows(p)))
                continue;
            told = *p->err;
            for (size_t j = 0; j < w->n; j++) {
                struct peer *q = &w->peer[j];

                if (q == p || !q->err || strcmp(plain(q->err->text), plain(told.text)) != 0)
                    continue;
                ckpt_free(q->err);
                q->err = NULL;
                same++;
            }
            if (same) {
                const char *text = plain(told.text);

                memmove(told.text, text, strlen(text) + 1);
                ckpt_err_in(&told, "rank %d and %zu other%s", p->rank, same, same > 1 ? "s" : "");
            } else if (!p->agreed && strncmp(told.text, "rank ", 5) != 0) {
                ckpt_err_in(&told, "rank %d", p->rank);
            }
            w->o->tell(w->o->ctx, &told);
            status = status ? status : ckpt_err_status(told.code);
        }
    return status;
}

/* What mpirun said is for those who ask for it: where it matters it is quoted. */
static void tell_words(const struct watch *w)
{
    for (const char *at = w->launch.said; *at;) {
        size_t n = strcspn(at, "\n");

        if (n)
            ckpt_log(CKPT_LOG_DEBUG, "mpirun: %.*s", (int)n, at);
        at += n + (at[n] == '\n');
    }
}

/* The run's status: of a failure, of what the supervisor found, of the ranks themselves. */
static int settle(struct watch *w)
{
    int status = tell_failures(w);

    tell_words(w);
    if (w->verdict.code && (status == 0 || w->at_once)) {
        w->o->tell(w->o->ctx, &w->verdict);
        status = w->at_once ? 128 + w->asked : ckpt_err_status(w->verdict.code);
    }
    for (int64_t r = 0; r < w->o->n && status == 0; r++)
        for (size_t i = 0; i < w->n; i++)
            if (w->peer[i].rank == r && status == 0)
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
    f[n++] = (struct pollfd){.fd = w->launch.listener, .events = POLLIN};
    f[n++] = (struct pollfd){.fd = w->launch.ended ? -1 : w->launch.output, .events = POLLIN};
    for (size_t i = 0; i < w->n; i++)
        f[n++] = (struct pollfd){.fd = w->peer[i].fd, .events = POLLIN};
    before = clock_now();
    poll(f, n, CONTROL_BEAT_MS / 2);
    w->now = clock_now();
    if (w->now - before > 1)            /* this process was held up: the others may have been */
        for (size_t i = 0; i < w->n; i++)
            w->peer[i].heard = w->now;
    take_signals(w);
    take_strangers(w);
    for (size_t i = 0; i < w->n; i++)
        listen_to(w, &w->peer[i]);
    launch_look(&w->launch);
}

static int watch_open(struct watch *w, sigset_t *was, struct ckpt_err *err)
{
    static const int mine[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
        sigaddset(&set, mine[i]);
    sigprocmask(SIG_BLOCK, &set, was);
    w->n_max = (size_t)w->o->n + STRANGERS;
    w->peer = ckpt_alloc(w->n_max, sizeof *w->peer);
    w->poll = ckpt_alloc(w->n_max + 3, sizeof *w->poll);
    if (!w->peer || !w->poll)
        return ckpt_nomem(err, w->n_max * (sizeof *w->peer + sizeof *w->poll));
    w->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (w->signals < 0)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a descriptor for signals");
    w->start = w->now = clock_now();
    return launch_start(&w->launch, w->o->n, w->o->argv, was, err);
}

static void watch_close(struct watch *w, const sigset_t *was)
{
    kill_all(w);
    launch_end(&w->launch);
    for (size_t i = 0; i < w->n; i++) {
        drop(&w->peer[i]);
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
    cpu_set_t set;
    int cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                           : (int)sysconf(_SC_NPROCESSORS_ONLN);
    int64_t most = cpus > 4 ? 4 * (int64_t)cpus : 16;

    if (n > most) {
        ckpt_fail(err, CKPT_ECONFIG, "`nproc %lld`: this host has %d CPU%s, for at most %lld ranks",
                  (long long)n, cpus, cpus == 1 ? "" : "s", (long long)most);
        return ckpt_err_hint(err, "to start more all the same: mpirun --oversubscribe -np %lld "
                             "ckpt-train ...", (long long)n);
    }
    if (n > cpus)
        ckpt_log(CKPT_LOG_WARNING, "%lld ranks share %d CPU%s", (long long)n, cpus,
                 cpus == 1 ? "" : "s");
    return 0;
}

int supervise_run(int *status, const struct supervise_opts *o, struct ckpt_err *err)
{
    struct watch w = {.o = o, .signals = -1,
                      .launch = {.listener = -1, .output = -1, .pid = -1, .ended = true}};
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
