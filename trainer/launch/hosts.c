/* hosts - see hosts.h. */
#include "trainer/launch/hosts.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/control.h"
#include "trainer/comm/meet.h"
#include "trainer/launch/node.h"
#include "trainer/comm/ranks.h"
#include "trainer/comm/shared.h"
#include "trainer/launch/ssh.h"

extern char **environ;

/* Seconds. */
#define OTHERS   1.5                    /* after one host's failure, for those of others */
#define LEAVE    5.0                    /* after one's end that all know of, for those of others */
#define AT_ONCE  1.0                    /* between two signals that are two requests */
#define CLOSE    3.0                    /* for ssh to end after its input has */

#define MAX_LINE 4096

/* What ssh writes, a line at a time. */
struct stream {
    size_t n;
    char   line[MAX_LINE];
};

struct host {
    const struct hostfile_host *row;
    int64_t first, n;                   /* its ranks */
    struct ssh ssh;
    struct stream out, err;
    bool    open;                       /* ssh was started, and has to be closed */
    bool    ended, answered;
    int     status;                     /* as waitpid gives it */
    double  ended_at;
    struct restart_end end;
};

struct launcher {
    const struct hosts_opts *o;
    bool         *lost;                 /* [hosts->n] not to be used any more */
    bool          mute;                 /* standard output takes no more */
    /* Of this try: */
    const struct restart_try *t;
    struct host  *host;                 /* [n] */
    struct pollfd *poll;                /* [2 n + 1] */
    size_t        n;
    char          word[33];
    int           asked;
    bool          at_once;
    double        now, asked_at, failed_at, ended_at, closed_at;    /* 0: not yet */
    bool          again;                /* what failed first may be only a consequence */
};

static bool since(const struct launcher *l, double then, double seconds)
{
    return then > 0 && l->now - then >= seconds;
}

/* -- starting --------------------------------------------------------------------------------- */

bool hosts_passes(const char *variable)
{
    static const char *const passed[] = {"CKPT_", "NCCL_", "OMP_", "OPENBLAS_"};
    static const char *const own[] = {
        NODE_ENV "=", HOSTS_CHOSEN_ENV "=", CONTROL_ENV "=", CONTROL_SAVED_ENV "=", SSH_ENV "=",
        "CKPT_STREAMS=",
        RANKS_HELD_ENV "=", MEET_WORD_ENV "=", SHARED_ENV "=",
    };
    bool found = false;

    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        found |= strncmp(variable, passed[i], strlen(passed[i])) == 0;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        found &= strncmp(variable, own[i], strlen(own[i])) != 0;
    return found && !strchr(variable, '\n');
}

static const char *master_of(const struct launcher *l)
{
    return l->o->master ? l->o->master : l->host[0].row->name;
}

/* What node.h has before the ranks start. */
static int instruct(const struct launcher *l, struct host *h, struct ckpt_err *err)
{
    struct ssh_text c = {0};
    char line[512], slots[6 * HOSTFILE_MAX_SLOTS];

    for (char **v = environ; *v; v++) {
        if (!hosts_passes(*v))
            continue;
        ssh_put(&c, "env ");
        ssh_put(&c, *v);
        ssh_put(&c, "\n");
    }
    hostfile_slot_list(slots, sizeof slots, h->row);
    ssh_put(&c, "env CUDA_VISIBLE_DEVICES=");
    ssh_put(&c, slots);
    snprintf(line, sizeof line, "\nranks %lld %lld %lld %lld %u %.255s %s\n", (long long)h->first,
             (long long)h->n, (long long)l->t->n, (long long)l->t->saved,
             (unsigned)l->o->master_port, master_of(l), l->word);
    ssh_put(&c, line);
    if (!c.failed)
        ssh_say(&h->ssh, c.text);
    ckpt_free(c.text);
    return c.failed ? ckpt_nomem(err, sizeof line) : 0;
}

static int start_host(const struct launcher *l, struct host *h, const char *command,
                      struct ckpt_err *err)
{
    const struct ssh_opts opts = {.host = h->row->name, .command = command,
                                  .port = l->o->ssh_port, .mask = l->t->mask};
    int rc = ssh_start(&h->ssh, &opts, err);

    h->open = true;
    return rc ? rc : instruct(l, h, err);
}

/* -- what they say ---------------------------------------------------------------------------- */

/* Checkpoints and the like, as they are. */
static void pass_on(struct launcher *l, const char *line, size_t n)
{
    while (n && !l->mute) {
        ssize_t k = write(STDOUT_FILENO, line, n);

        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            l->mute = true;
            ckpt_log(CKPT_LOG_WARNING, "standard output: %s: no checkpoint is announced any more; "
                     "training and saving go on", strerror(errno));
            return;
        }
        line += k;
        n -= (size_t)k;
    }
}

static void take_err(struct host *h, const char *line)
{
    if (*line == NODE_MARK && node_answer(&h->end, line + 1))
        h->answered |= strncmp(line + 1, "end ", 4) == 0;
    else
        dprintf(STDERR_FILENO, "%s: %s\n", h->row->name, line);
}

/* The end of a line or, with -0, of a path; NULL: it has not come yet. */
static char *end_of(char *at, size_t n)
{
    size_t i = 0;

    while (i < n && at[i] != '\n' && at[i] != '\0')
        i++;
    return i < n ? at + i : NULL;
}

/* s is the host's out, or its err. */
static void take_lines(struct launcher *l, struct host *h, struct stream *s, bool end)
{
    char *at = s->line, *past = s->line + s->n, *eol;

    while (at < past && ((eol = end_of(at, (size_t)(past - at))) || end || s->n == MAX_LINE - 1)) {
        size_t n = eol ? (size_t)(eol - at) + 1 : (size_t)(past - at);

        if (s == &h->out)
            pass_on(l, at, n);
        *(eol ? eol : past) = '\0';
        if (s == &h->err)
            take_err(h, at);
        at += n;
    }
    s->n = (size_t)(past - at);
    memmove(s->line, at, s->n);
}

static void take(struct launcher *l, struct host *h, struct stream *s, int *fd)
{
    ssize_t n = read(*fd, s->line + s->n, MAX_LINE - 1 - s->n);

    if (n < 0 && errno == EINTR)
        return;
    if (n > 0)
        s->n += (size_t)n;
    take_lines(l, h, s, n <= 0);
    if (n <= 0) {
        close(*fd);
        *fd = -1;
    }
}

/* -- ends ------------------------------------------------------------------------------------- */

/* ssh's own failures, and those of the program's start there. */
static void explain(struct host *h)
{
    int status = WIFEXITED(h->status) ? WEXITSTATUS(h->status) : 255;
    struct ckpt_err why = {0};

    if (h->end.n_failures) {
        h->end.status = ckpt_err_status(h->end.failure[0].code);
        h->end.again = h->end.failure[0].code == CKPT_ECOMM;
        return;
    }
    if (status == 255)
        ckpt_fail_as(&why, CKPT_ECOMM, "peer-dead", "the connection was not made, or broke");
    else if (status == 127 || status == 126)
        ckpt_fail(&why, CKPT_EDEVICE, "ckpt-train did not start there: status %d", status);
    else
        ckpt_fail(&why, CKPT_ECOMM, "ended with status %d", status);
    if (status == 255)
        ckpt_err_hint(&why, "ssh without a password, from here to every host, is needed");
    restart_tell(&h->end, &why);
    h->end.status = ckpt_err_status(why.code);
    h->end.again = why.code == CKPT_ECOMM;
}

static void notice_end(struct launcher *l, struct host *h)
{
    h->ended = true;
    h->ended_at = l->now;
    if (!h->answered && (h->status != 0 || h->end.n_failures))
        explain(h);
    if (l->ended_at == 0)
        l->ended_at = l->now;
    if (l->failed_at == 0 && h->end.status) {
        l->failed_at = l->now;
        l->again = h->end.again;
    }
}

static void reap(struct launcher *l)
{
    for (size_t i = 0; i < l->n; i++) {
        struct host *h = &l->host[i];

        if (h->ssh.out < 0 && h->ssh.err < 0 && ssh_ended(&h->ssh, &h->status))
            notice_end(l, h);
    }
}

/* The ends of their inputs end all supervisors. */
static void close_all(struct launcher *l)
{
    for (size_t i = 0; i < l->n; i++)
        ssh_hang_up(&l->host[i].ssh);
    if (l->closed_at == 0)
        l->closed_at = l->now;
}

static bool over(struct launcher *l)
{
    bool all = true;

    for (size_t i = 0; i < l->n; i++)
        all &= l->host[i].ended;
    if (l->at_once || since(l, l->failed_at, l->again && !l->asked ? OTHERS : LEAVE))
        close_all(l);
    for (size_t i = 0; i < l->n && since(l, l->closed_at, CLOSE); i++)
        ssh_kill(&l->host[i].ssh);
    return all || since(l, l->closed_at, CLOSE + 1);
}

/* -- signals ---------------------------------------------------------------------------------- */

static void take_signals(struct launcher *l)
{
    struct signalfd_siginfo s;
    char line[32];

    while (read(l->t->signals, &s, sizeof s) == (ssize_t)sizeof s) {
        int sig = (int)s.ssi_signo;

        if (sig == SIGTSTP) {
            raise(SIGSTOP);
        } else if (sig != SIGCHLD && !l->asked) {
            l->asked = sig;
            l->asked_at = l->now;
            snprintf(line, sizeof line, "signal %d\n", sig);
            for (size_t i = 0; i < l->n; i++)
                ssh_say(&l->host[i].ssh, line);
        } else if ((sig == SIGINT || sig == SIGTERM) && since(l, l->asked_at, AT_ONCE)) {
            l->at_once = true;
            l->asked = sig;
        }
    }
}

/* -- a try ------------------------------------------------------------------------------------ */

static void look(struct launcher *l)
{
    struct pollfd *f = l->poll;
    size_t n = 0;

    f[n++] = (struct pollfd){.fd = l->t->signals, .events = POLLIN};
    for (size_t i = 0; i < l->n; i++) {
        f[n++] = (struct pollfd){.fd = l->host[i].ssh.out, .events = POLLIN};
        f[n++] = (struct pollfd){.fd = l->host[i].ssh.err, .events = POLLIN};
    }
    poll(f, n, 100);
    l->now = clock_now();
    take_signals(l);
    for (size_t i = 0; i < l->n; i++) {
        struct host *h = &l->host[i];

        if (f[1 + 2 * i].revents)
            take(l, h, &h->out, &h->ssh.out);
        if (f[2 + 2 * i].revents)
            take(l, h, &h->err, &h->ssh.err);
    }
    reap(l);
}

/* The hosts of this try, until there are slots for all its ranks. */
static void allot(struct launcher *l)
{
    const struct hostfile *all = l->o->hosts;
    int64_t first = 0;

    for (size_t i = 0; i < all->n && first < l->t->n; i++) {
        struct host *h = &l->host[l->n];
        int64_t more = l->t->n - first;

        if (l->lost[i])
            continue;
        *h = (struct host){.row = &all->host[i], .first = first,
                           .end = {.step = -1, .saving = -1, .saved = -1}};
        h->n = more < all->host[i].n ? more : all->host[i].n;
        first += h->n;
        l->n++;
    }
}

static int draw_word(char word[33], struct ckpt_err *err)
{
    unsigned char bits[16];

    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "random bytes");
    for (size_t i = 0; i < sizeof bits; i++)
        snprintf(word + 2 * i, 3, "%02x", bits[i]);
    return 0;
}

static int start_all(struct launcher *l, struct ckpt_err *err)
{
    struct ssh_text command = {0};
    int rc = draw_word(l->word, err);

    allot(l);
    if (rc == 0)
        rc = ssh_command(&command, NODE_ENV, l->o->argv, err);
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = start_host(l, &l->host[i], command.text, err);
    ckpt_free(command.text);
    l->now = clock_now();
    return rc;
}

/* Whether its ranks ended because those of another host told why they do. */
static bool follows(const struct host *h)
{
    return h->end.n_failures && strcmp(h->end.failure[0].reason, "peer-failed") == 0;
}

/* Whether a's end says more of the reason than b's: one that is no other's consequence, one with
 * words (of what all ranks know only one tells), the earlier. */
static bool says_more(const struct host *a, const struct host *b)
{
    bool words = a->end.n_failures > 0;

    if (follows(a) != follows(b))
        return follows(b);
    if (a->end.again != b->end.again)
        return b->end.again;
    if (words != (b->end.n_failures > 0))
        return words;
    return a->ended_at < b->ended_at;
}

/* The host whose failure is the run's.  What was ended from here says nothing. */
static const struct host *cause(const struct launcher *l)
{
    const struct host *first = NULL;

    for (size_t i = 0; i < l->n; i++) {
        const struct host *h = &l->host[i];

        if (h->ended && h->end.status && (l->closed_at == 0 || h->ended_at < l->closed_at) &&
            (!first || says_more(h, first)))
            first = h;
    }
    return first;
}

static void settle(struct launcher *l, struct restart_end *end)
{
    const struct host *first = cause(l);
    struct ckpt_err why = {0};

    for (size_t i = 0; i < l->n; i++) {
        const struct host *h = &l->host[i];
        const struct restart_end *e = &h->end;

        end->step = e->step > end->step ? e->step : end->step;
        end->saved = e->saved > end->saved ? e->saved : end->saved;
        if (e->saving >= 0 && (end->saving < 0 || e->saving < end->saving))
            end->saving = e->saving;
        l->lost[h->row - l->o->hosts->host] |=      /* ssh did not end by itself */
            !h->ended || (!h->answered && since(l, l->closed_at, CLOSE) &&
                          h->ended_at > l->closed_at + CLOSE);
    }
    if (l->at_once) {
        ckpt_fail(&why, CKPT_ESTOPPED, "SIG%s again: all ranks were ended, unsaved progress is "
                  "lost", sigabbrev_np(l->asked));
        restart_tell(end, &why);
        end->status = 128 + l->asked;
        return;
    }
    if (!first)
        return;
    end->status = first->end.status;
    end->again = first->end.again && !l->asked;
    for (size_t i = 0; i < first->end.n_failures; i++) {
        why = first->end.failure[i];
        ckpt_err_in(&why, "%s", first->row->name);
        restart_tell(end, &why);
    }
    if (!first->answered && first->end.again)
        l->lost[first->row - l->o->hosts->host] = true;
}

static void close_hosts(struct launcher *l)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->host[i].open)
            ssh_close(&l->host[i].ssh);
        ckpt_free(l->host[i].end.failure);
    }
    ckpt_free(l->host);
    ckpt_free(l->poll);
}

static int run(void *ctx, struct restart_end *end, const struct restart_try *t,
               struct ckpt_err *err)
{
    struct launcher *l = ctx;
    size_t n = l->o->hosts->n;
    int rc = 0;

    *l = (struct launcher){.o = l->o, .lost = l->lost, .mute = l->mute, .t = t};
    l->host = ckpt_alloc(n, sizeof *l->host);
    l->poll = ckpt_alloc(2 * n + 1, sizeof *l->poll);
    if (!l->host || !l->poll)
        rc = ckpt_nomem(err, n * sizeof *l->host);
    if (rc == 0 && (rc = start_all(l, err)) == 0) {
        do
            look(l);
        while (!over(l));
        settle(l, end);
    }
    close_hosts(l);
    return rc;
}

/* Slots of hosts that are there; without leave to go on with fewer all are tried again. */
static int64_t left(void *ctx, int64_t n)
{
    struct launcher *l = ctx;
    int64_t slots = 0;

    for (size_t i = 0; i < l->o->hosts->n; i++) {
        l->lost[i] &= l->o->min_ranks > 0;
        slots += l->lost[i] ? 0 : l->o->hosts->host[i].n;
    }
    return slots < n ? slots : n;
}

/* Other hosts would look for the store on themselves. */
static int check_master(const struct hosts_opts *o, struct ckpt_err *err)
{
    const char *first = o->hosts->host[0].name;

    if (o->master || o->hosts->n == 1 ||
        (strcmp(first, "localhost") != 0 && strncmp(first, "127.", 4) != 0))
        return 0;
    ckpt_fail(err, CKPT_ECONFIG, "the first host is %s: no other reaches it by that name", first);
    return ckpt_err_hint(err, "`master_addr HOST` is the name by which they do");
}

int hosts_run(int *status, const struct hosts_opts *o, struct ckpt_err *err)
{
    struct launcher l = {.o = o};
    const struct restart_opts tries = {
        .n = hostfile_slots(o->hosts), .max = o->max_restarts, .min = o->min_ranks, .ctx = &l,
        .run = run, .left = left, .tell_ctx = o->ctx, .tell = o->tell,
    };
    int rc = check_master(o, err);

    if (rc == 0 && getenv("CKPT_STREAMS"))
        rc = ckpt_fail(err, CKPT_ECONFIG, "`hostfile`: other hosts cannot read a pipe of this one: "
                       "a file is wanted");
    if (rc)
        return rc;
    l.lost = ckpt_alloc(o->hosts->n, sizeof *l.lost);
    if (!l.lost)
        return ckpt_nomem(err, o->hosts->n);
    rc = restart_run(status, &tries, err);
    if (rc == 0 && l.mute && *status == 0)
        *status = ckpt_err_status(CKPT_EIO);
    ckpt_free(l.lost);
    return rc;
}
