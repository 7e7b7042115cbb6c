/* comm/pulse - see pulse.h. */
#include "trainer/comm/pulse.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/report.h"

#define GRACE_MS 500                    /* for a main thread that ends by itself */
#define MAX_TEXT 1200

struct pulse {
    pthread_mutex_t lock;               /* of all below */
    pthread_cond_t  changed;
    pthread_t       thread;
    struct store   *store;
    const char     *holder;
    char            run[160], host[65];
    int             rank, world_size;
    bool            leaving;
    struct ckpt_err own;                /* to be told; code 0: nothing */
    struct ckpt_err cause;              /* what ends the run; code 0: nothing */
    int64_t         cause_at;           /* ms */
    char            phase[96];          /* as the others know it */
    bool            entered;            /* another one has begun; atomic, without the lock */
    int64_t         count, count_at;    /* the next rank's, and when it was seen first */
    int64_t         beat_at;            /* when this thread beat last */
    int64_t         patience_ms;
    uint64_t        done;               /* this rank's progress */
    int64_t         done_at;            /* when that went up last; 0: not looked at yet */
    bool            idle;               /* counted among those that are */
};

static const char *key(char dst[256], const struct pulse *p, const char *what, int rank)
{
    snprintf(dst, 256, "%s/%s/%d", p->run, what, rank);
    return dst;
}

/* A failure goes through the store as "CODE TEXT". */
static int tell_cause(struct pulse *p, const struct ckpt_err *why, struct ckpt_err *err)
{
    char k[256], text[MAX_TEXT];

    snprintf(text, sizeof text, "%d %s", why->code, why->text);
    return store_set(p->store, key(k, p, "cause", 0), text, strlen(text), err);
}

/* This rank has found out that another one is gone. */
static int find_cause(struct pulse *p, const char *text, struct ckpt_err *err)
{
    ckpt_fail_as(&p->cause, CKPT_ECOMM, "peer-dead", "%s", text);
    return tell_cause(p, &p->cause, err);
}

/* Tell the phase when it is another than before, and the failure when there is one. */
static int tell_own(struct pulse *p, struct ckpt_err *err)
{
    char k[256], phase[sizeof p->phase];
    int rc = 0;

    __atomic_store_n(&p->entered, false, __ATOMIC_SEQ_CST);
    report_phase_now(phase, sizeof phase);
    if (strcmp(phase, p->phase) != 0) {
        memcpy(p->phase, phase, sizeof p->phase);
        rc = store_set(p->store, key(k, p, "phase", p->rank), phase, strlen(phase), err);
    }
    if (rc == 0 && p->own.code) {
        rc = tell_cause(p, &p->own, err);
        p->own.code = 0;
    }
    return rc;
}

/* What another rank told; read once. */
static int hear_cause(struct pulse *p, struct ckpt_err *err)
{
    char k[256], text[MAX_TEXT], *told;
    size_t n = 0;
    long code;
    int rc = store_has(p->store, key(k, p, "cause", 0), err);

    if (rc != 1)
        return rc;
    if ((rc = store_get(p->store, k, text, sizeof text - 1, &n, PULSE_SILENT_MS, err)) != 0)
        return rc;
    text[n] = '\0';
    code = strtol(text, &told, 10);
    if (told == text || *told != ' ' || code >= 0 || code < CKPT_ENO)
        code = CKPT_ECOMM;              /* of a stranger */
    told += *told == ' ';
    ckpt_fail_as(&p->cause, (int)code, code == CKPT_ECOMM ? "peer-dead" : "peer-failed", "%s", "");
    ckpt_err_escape(p->cause.text, sizeof p->cause.text, told, strlen(told));
    return 0;
}

/* The next rank's number, phase and host.  held_up: this process was, and the others may have been
 * with it, as when a whole job is stopped and goes on. */
static int watch_next(struct pulse *p, bool held_up, struct ckpt_err *err)
{
    int next = (p->rank + 1) % p->world_size, rc;
    char k[256], text[600], phase[96] = "start-up", host[256] = "";
    int64_t count = 0;
    size_t n = 0;

    if ((rc = store_add(p->store, key(k, p, "beat", next), 0, &count, err)) != 0)
        return rc;
    if (count != p->count || p->count_at == 0 || held_up) {
        p->count = count;
        p->count_at = clock_ms();
        return 0;
    }
    if (clock_ms() - p->count_at < PULSE_SILENT_MS)
        return 0;
    if ((rc = store_has(p->store, key(k, p, "bye", next), err)) != 0) {
        p->count_at = clock_ms();
        return rc == 1 ? 0 : rc;
    }
    if (store_has(p->store, key(k, p, "phase", next), err) == 1 &&
        store_get(p->store, k, phase, sizeof phase - 1, &n, PULSE_SILENT_MS, err) == 0)
        phase[n] = '\0';
    if (store_get(p->store, key(k, p, "hello", next), host, sizeof host - 1, &n, PULSE_SILENT_MS,
                  err) == 0)
        host[n] = '\0';
    snprintf(text, sizeof text, "rank %d on %s: not heard for %d s, in: %s", next,
             strchr(host, ' ') ? strchr(host, ' ') + 1 : "another host",
             PULSE_SILENT_MS / 1000, phase);
    return find_cause(p, text, err);
}

/* The rank that has begun the fewest collectives: the others wait for it. */
static int name_behind(struct pulse *p, struct ckpt_err *err)
{
    unsigned long long least = 0, most = 0, count;
    char k[256], text[600], phase[96] = "", host[256] = "";
    int behind = 0, at, rc;
    size_t n = 0;

    for (int r = 0; r < p->world_size; r++) {
        if ((rc = store_get(p->store, key(k, p, "idle", r), text, sizeof text - 1, &n,
                            PULSE_SILENT_MS, err)) != 0)
            return rc;
        text[n] = '\0';
        if (sscanf(text, "%llu %n", &count, &at) != 1)
            continue;
        most = count > most ? count : most;
        if (r == 0 || count < least) {
            least = count;
            behind = r;
            ckpt_err_escape(phase, sizeof phase, text + at, strlen(text + at));
        }
    }
    if (store_get(p->store, key(k, p, "hello", behind), host, sizeof host - 1, &n, PULSE_SILENT_MS,
                  err) == 0)
        host[n] = '\0';
    snprintf(text, sizeof text, "rank %d on %s: no progress for %lld s in: %s%s", behind,
             strchr(host, ' ') ? strchr(host, ' ') + 1 : "another host",
             (long long)(p->patience_ms / 1000), phase,
             most > least ? ", others wait for it" : "");
    return find_cause(p, text, err);
}

/* Whether this rank comes further, and, when it does not, whether any does. */
static int watch_progress(struct pulse *p, bool held_up, struct ckpt_err *err)
{
    struct report_progress now = report_progress_now();
    char k[256], text[160];
    int64_t idle = 0;
    bool was = p->idle;
    int rc = 0;

    if (now.done != p->done || p->done_at == 0 || held_up) {
        p->done = now.done;
        p->done_at = clock_ms();
        p->idle = false;
        return was ? store_add(p->store, key(k, p, "idlers", 0), -1, &idle, err) : 0;
    }
    if (p->patience_ms == 0 || clock_ms() - p->done_at < p->patience_ms)
        return 0;
    snprintf(text, sizeof text, "%llu %s", (unsigned long long)now.collectives, p->phase);
    if (!was)
        rc = store_set(p->store, key(k, p, "idle", p->rank), text, strlen(text), err);
    if (rc == 0)
        rc = store_add(p->store, key(k, p, "idlers", 0), !was, &idle, err);
    p->idle = true;
    return rc ? rc : idle < p->world_size ? 0 : name_behind(p, err);
}

static int beat_once(struct pulse *p, struct ckpt_err *err)
{
    char k[256];
    int64_t sum;
    bool held_up = clock_ms() - p->beat_at > PULSE_SILENT_MS / 2;
    int rc = store_add(p->store, key(k, p, "beat", p->rank), 1, &sum, err);

    p->beat_at = clock_ms();
    if (rc == 0)
        rc = tell_own(p, err);
    if (rc == 0)
        rc = hear_cause(p, err);
    if (rc == 0 && !p->cause.code)
        rc = watch_next(p, held_up, err);
    if (rc == 0 && !p->cause.code)
        rc = watch_progress(p, held_up, err);
    return rc;
}

static void wait_ms(struct pulse *p, int ms)
{
    struct timespec until;

    if (ms <= 0)
        return;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)ms * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

/* The main thread waits for somebody who will not come. */
static void end_process(const struct pulse *p)
{
    struct ckpt_err err = {0};

    ckpt_fail_as(&err, p->cause.code, p->cause.reason, "rank %d: ended: %s", p->rank,
                 p->cause.text);
    if (!report_error(&err, false))
        ckpt_log(CKPT_LOG_ERROR, "%s", err.text);
    _exit(ckpt_err_status(p->cause.code));
}

/* Report.h calls it for every phase, in the thread that trains, which must not wait here. */
static void enter(void *arg)
{
    struct pulse *p = arg;

    __atomic_store_n(&p->entered, true, __ATOMIC_SEQ_CST);
    if (pthread_mutex_trylock(&p->lock) == 0) {
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
}

/* Whether a phase began that is not the next step of the same: that is told with the next beat. */
static bool other_phase(const struct pulse *p)
{
    char phase[sizeof p->phase];
    size_t words;

    if (!__atomic_load_n(&p->entered, __ATOMIC_SEQ_CST))
        return false;
    report_phase_now(phase, sizeof phase);
    words = strcspn(phase, "0123456789");
    return words != strcspn(p->phase, "0123456789") || strncmp(phase, p->phase, words) != 0;
}

/* A beat where it is time for one, or the new phase alone. */
static int beat_or_tell(struct pulse *p, struct ckpt_err *err)
{
    if (p->beat_at == 0 || clock_ms() - p->beat_at >= PULSE_BEAT_MS)
        return beat_once(p, err);
    return other_phase(p) ? tell_own(p, err) : 0;
}

static void *beat(void *arg)
{
    struct pulse *p = arg;
    struct ckpt_err err = {0};

    pthread_mutex_lock(&p->lock);
    while (!p->leaving) {
        if (!p->cause.code && beat_or_tell(p, &err) != 0)
            ckpt_fail_as(&p->cause, CKPT_ECOMM, "peer-dead", "%s is gone: %s", p->holder,
                         err.text);
        if (p->cause.code && p->cause_at == 0) {
            p->cause_at = clock_ms();
            pthread_cond_broadcast(&p->changed);
        }
        if (p->cause.code && clock_ms() - p->cause_at > GRACE_MS)
            end_process(p);
        if (p->cause.code)
            wait_ms(p, GRACE_MS / 4);
        else if (!other_phase(p))
            wait_ms(p, (int)(PULSE_BEAT_MS - (clock_ms() - p->beat_at)));
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_thread(struct pulse *p, struct ckpt_err *err)
{
    pthread_condattr_t attr;
    sigset_t all, was;
    int rc;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all);                   /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &was);
    rc = pthread_create(&p->thread, NULL, beat, p);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return rc ? ckpt_fail_errno(err, CKPT_ENOMEM, rc, "a thread") : 0;
}

int pulse_open(struct pulse **out, const struct pulse_opts *o, struct ckpt_err *err)
{
    struct pulse *p = ckpt_alloc(1, sizeof *p);
    int rc;

    *out = NULL;
    if (!p) {
        store_close(o->store);
        return ckpt_nomem(err, sizeof *p);
    }
    p->store = o->store;
    p->holder = o->holder;
    p->rank = o->rank;
    p->world_size = o->world_size;
    p->patience_ms = o->patience_ms;
    snprintf(p->run, sizeof p->run, "%s", o->run);
    snprintf(p->host, sizeof p->host, "%s", o->host);
    store_answers_within(p->store, PULSE_SILENT_MS);
    if ((rc = start_thread(p, err)) != 0) {
        store_close(p->store);
        ckpt_free(p);
        return rc;
    }
    report_on_phase(enter, p);
    *out = p;
    return 0;
}

void pulse_tell(struct pulse *p, const struct ckpt_err *why)
{
    struct ckpt_err unheard = {0};

    pthread_mutex_lock(&p->lock);
    p->own = *why;
    if (!p->cause.code)
        tell_own(p, &unheard);
    p->leaving = true;                  /* with its own status, however long that takes */
    pthread_mutex_unlock(&p->lock);
}

bool pulse_cause(struct pulse *p, struct ckpt_err *why)
{
    int64_t until = clock_ms() + PULSE_SILENT_MS + 3 * PULSE_BEAT_MS;
    bool found;

    pthread_mutex_lock(&p->lock);
    while (!p->cause.code && clock_ms() < until)
        wait_ms(p, PULSE_BEAT_MS);
    found = p->cause.code != 0;
    p->leaving = found || p->leaving;   /* this thread tells it */
    if (found)
        *why = p->cause;
    pthread_mutex_unlock(&p->lock);
    return found;
}

void pulse_close(struct pulse *p)
{
    struct ckpt_err unheard = {0};
    char k[256];

    if (!p)
        return;
    report_on_phase(NULL, NULL);
    pthread_mutex_lock(&p->lock);
    if (!p->cause.code)
        store_set(p->store, key(k, p, "bye", p->rank), "", 0, &unheard);
    p->leaving = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    store_close(p->store);
    ckpt_free(p);
}
