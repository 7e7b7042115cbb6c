/* verdict - see verdict.h. */
#include "trainer/launch/verdict.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>

#include "libckpt/mem.h"
#include "trainer/launch/supervise.h"

/* Seconds. */
#define STOPPED    2.5                  /* a stopped process is not waited for longer */
#define SILENT     60.0                 /* nor one that runs, but is never heard */
#define OTHERS     0.5                  /* after one failure, for the failures of others */
#define ECHO       5.0                  /* after one that says only that a peer has gone: here, */
#define ECHO_FAR   0.5                  /* or perhaps on another host */
#define START      5.0                  /* after a signal, for ranks that have yet to meet */
#define LEAVE      5.0                  /* after the last goodbye, until all processes have ended */

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

/* A rank of those here, by its number among all. */
static long long rank_of(const struct watch *w, size_t r)
{
    return (long long)(w->o->place ? w->o->place->first : 0) + (long long)r;
}

static void go_on_hint(struct watch *w)
{
    if (w->o->resumes)
        ckpt_err_hint(&w->verdict, "go on with `resume_from_checkpoint latest`");
}

/* A crash is a fault of the program, and worth a report, even where another try is made. */
static bool another_try_helps(int sig)
{
    return sig != SIGSEGV && sig != SIGBUS && sig != SIGILL && sig != SIGFPE && sig != SIGABRT;
}

static void tell_unbegun(struct watch *w)
{
    ckpt_fail(&w->verdict, CKPT_ESTOPPED, "SIG%s in: start-up: ended, nothing was begun",
              sigabbrev_np(w->asked));
}

/* A rank has gone without a goodbye. */
static void tell_lost(struct watch *w, size_t r)
{
    const struct launch_rank *l = &w->launch.rank[r];
    long long rank = rank_of(w, r);
    int sig = l->ended && WIFSIGNALED(l->status) ? WTERMSIG(l->status) : 0;
    char how[64] = "closed its connection";

    if (sig && sig == w->asked) {       /* it was passed on before the rank looked at signals */
        tell_unbegun(w);
        return;
    }
    if (sig)
        snprintf(how, sizeof how, "killed by SIG%s", sigabbrev_np(sig) ? sigabbrev_np(sig) : "?");
    else if (l->ended)
        snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(l->status));
    w->killed = sig != 0;
    ckpt_fail_as(&w->verdict, another_try_helps(sig) ? CKPT_ECOMM : CKPT_ESTATE, "peer-dead",
                 "rank %lld on %s, process %ld: %s in: %s", rank, w->host, (long)l->pid, how,
                 w->peer[r].phase);
    if (sig == SIGKILL)
        ckpt_err_hint(&w->verdict, "the system may be out of memory (see dmesg)%s",
                      w->o->resumes ? "; go on with `resume_from_checkpoint latest`" : "");
    else if (another_try_helps(sig))
        go_on_hint(w);
}

/* A rank that is there, but is not heard. */
static bool tell_silent(struct watch *w, size_t r)
{
    const struct peer *p = &w->peer[r];
    pid_t pid = w->launch.rank[r].pid;
    char state = state_of(pid);
    bool stopped = state == 'T';

    if (!stopped && (state == 't' || state == 'Z' || !watch_since(w, p->heard, SILENT)))
        return false;                   /* under a debugger, ending, or only slow */
    ckpt_fail_as(&w->verdict, CKPT_ECOMM, "peer-dead",
                 "rank %lld on %s, process %ld: %s, not heard for %.0f s, in: %s", rank_of(w, r),
                 w->host, (long)pid, stopped ? "stopped" : "hangs", w->now - p->heard, p->phase);
    go_on_hint(w);
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
        if (!p->lost && watch_since(w, p->heard, STOPPED) && tell_silent(w, i))
            return true;
    }
    if (first == w->n ||
        (!w->launch.rank[first].ended && !watch_since(w, w->peer[first].lost_at, OTHERS)))
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
        if (!watch_since(w, p->moved, w->o->patience))
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

/* Ranks that are being started may look at no signal for long, and have nothing to lose. */
static bool judge_start(struct watch *w)
{
    if (!watch_since(w, w->asked_at, START))
        return false;
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->peer[i].phase, "start-up") != 0 || w->peer[i].bye)
            return false;
    tell_unbegun(w);
    return true;
}

bool verdict_over(struct watch *w)
{
    bool all_bye = true, all_ended = true;

    for (size_t i = 0; i < w->n; i++) {
        all_bye &= w->peer[i].bye;
        all_ended &= w->launch.rank[i].ended;
    }
    if (all_bye && w->quiet_at == 0)
        w->quiet_at = w->now;
    if (w->at_once || w->left || watch_since(w, w->failed_at, OTHERS) ||
        watch_since(w, w->echo_at, w->o->place ? ECHO_FAR : ECHO) || judge_ranks(w) ||
        judge_progress(w) || judge_start(w))
        return true;
    return all_bye && (all_ended || watch_since(w, w->quiet_at, LEAVE));
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
        cause |= w->peer[i].err && !watch_follows(w->peer[i].err);
    for (size_t i = 0; i < w->n; i++) {
        struct peer *p = &w->peer[i];
        struct ckpt_err told;
        size_t same = 0;

        if (!p->err || (cause && watch_follows(p->err)))
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

void verdict_settle(struct watch *w)
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
