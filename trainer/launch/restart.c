/* restart - see restart.h. */
#include "trainer/launch/restart.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"

#define LONGEST 60.0                    /* seconds of a pause */

void restart_tell(struct restart_end *end, const struct ckpt_err *err)
{
    struct ckpt_err *all = ckpt_alloc(end->n_failures + 1, sizeof *all);

    if (!all)
        return;                         /* the status says it */
    if (end->n_failures)
        memcpy(all, end->failure, end->n_failures * sizeof *all);
    all[end->n_failures++] = *err;
    ckpt_free(end->failure);
    end->failure = all;
}

double restart_pause(const struct restart *r)
{
    double seconds = 1;

    for (int64_t i = 1; i < r->tried && seconds < LONGEST; i++)
        seconds *= 2;
    return seconds < LONGEST ? seconds : LONGEST;
}

/* Whether the try before this one failed in the same place, and nothing was saved since. */
static bool same_end(const struct restart *r, const struct restart_end *end)
{
    return r->failed && r->status == end->status && r->step == end->step && r->at == r->saved;
}

enum restart_what restart_judge(struct restart *r, const struct restart_end *end)
{
    bool stuck, fewer;

    r->tried++;
    if (r->saving < 0)
        r->saving = end->saving;
    if (end->saved >= 0)
        r->saved = end->saved;
    if (!end->again)
        return RESTART_END;
    if (r->tried > r->max)
        return RESTART_SPENT;
    stuck = same_end(r, end);
    fewer = stuck && r->min > 0 && r->n > r->min;
    if (stuck && !fewer)
        return RESTART_STUCK;
    r->n -= fewer;
    r->failed = !fewer;                 /* fewer ranks are another run */
    r->status = end->status;
    r->step = end->step;
    r->at = r->saved;
    return RESTART_AGAIN;
}

/* -- the tries themselves --------------------------------------------------------------------- */

/* The ranks of the next try, or fewer where places have gone; false: too few are left. */
static bool find_places(struct restart *r, const struct restart_opts *o, struct ckpt_err *err)
{
    int64_t left = o->left ? o->left(o->ctx, r->n) : r->n;
    int64_t least = r->min > 0 ? r->min : r->n;

    if (left >= least) {
        r->n = left < r->n ? left : r->n;
        return true;
    }
    ckpt_fail(err, CKPT_EDEVICE, "not started again: %lld of %lld ranks have a place left",
              (long long)left, (long long)r->n);
    if (left > 0)
        ckpt_err_hint(err, "`min_ranks %lld` goes on with them", (long long)left);
    return false;
}

static void announce(const struct restart *r, double pause)
{
    char from[64] = "from where the first began";

    if (r->saved >= 0)
        snprintf(from, sizeof from, "from step %lld", (long long)r->saved);
    ckpt_log(CKPT_LOG_WARNING, "try %lld of %lld in %.0f s: %lld rank%s, %s",
             (long long)r->tried + 1, (long long)r->max + 1, pause, (long long)r->n,
             r->n == 1 ? "" : "s", from);
}

/* The signal that came meanwhile, or 0. */
static int wait_seconds(int signals, double seconds)
{
    struct pollfd p = {.fd = signals, .events = POLLIN};
    double until = clock_now() + seconds, now;
    struct signalfd_siginfo s;

    while ((now = clock_now()) < until) {
        if (poll(&p, 1, (int)((until - now) * 1000) + 1) <= 0 ||
            read(signals, &s, sizeof s) != (ssize_t)sizeof s || s.ssi_signo == SIGCHLD)
            continue;
        if (s.ssi_signo != SIGTSTP)
            return (int)s.ssi_signo;
        raise(SIGSTOP);
    }
    return 0;
}

/* After a try: tell of it, and whether another follows; *status is final when none does. */
static bool follow(int *status, struct restart *r, const struct restart_opts *o,
                   const struct restart_end *end, int signals)
{
    enum restart_what what = restart_judge(r, end);
    struct ckpt_err gone = {0};
    bool again = what == RESTART_AGAIN && find_places(r, o, &gone);
    double pause = restart_pause(r);
    int sig;

    *status = end->status;
    for (size_t i = 0; i < end->n_failures; i++)
        if (again)
            ckpt_log(CKPT_LOG_WARNING, "%s", end->failure[i].text);
        else
            o->tell(o->tell_ctx, &end->failure[i]);
    if (gone.code)
        ckpt_log(CKPT_LOG_WARNING, "%s", gone.text);
    if (what == RESTART_SPENT && r->max > 0)
        ckpt_log(CKPT_LOG_WARNING, "no try is left of %lld", (long long)r->max + 1);
    if (what == RESTART_STUCK)
        ckpt_log(CKPT_LOG_WARNING, "not tried again: nothing was saved since a try that ended in "
                 "the same way");
    if (!again)
        return false;
    announce(r, pause);
    if ((sig = wait_seconds(signals, pause)) == 0)
        return true;
    ckpt_fail(&gone, CKPT_ESTOPPED, "SIG%s before try %lld: go on with "
              "`resume_from_checkpoint latest`", sigabbrev_np(sig), (long long)r->tried + 1);
    o->tell(o->tell_ctx, &gone);
    *status = ckpt_err_status(gone.code);
    return false;
}

static int tries(int *status, const struct restart_opts *o, struct restart_try *t,
                 struct ckpt_err *err)
{
    struct restart r = {.n = o->n, .max = o->max, .min = o->min, .saving = -1, .saved = -1};
    bool again = true;
    int rc = 0;

    while (again) {
        struct restart_end end = {.step = -1, .saving = -1, .saved = -1};

        t->n = r.n;
        t->saved = r.saving;
        rc = o->run(o->ctx, &end, t, err);
        again = rc == 0 && follow(status, &r, o, &end, t->signals);
        ckpt_free(end.failure);
    }
    return rc;
}

int restart_run(int *status, const struct restart_opts *o, struct ckpt_err *err)
{
    static const int mine[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
    struct restart_try t = {.signals = -1};
    sigset_t set, was;
    int rc;

    sigemptyset(&set);
    for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++)
        sigaddset(&set, mine[i]);
    sigprocmask(SIG_BLOCK, &set, &was);
    t.mask = &was;
    t.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    rc = t.signals < 0 ? ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a descriptor for signals")
                       : tries(status, o, &t, err);
    if (t.signals >= 0)
        close(t.signals);
    sigprocmask(SIG_SETMASK, &was, NULL);
    return rc;
}
