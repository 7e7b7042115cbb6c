/* report - see report.h. */
#include "trainer/comm/report.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libckpt/log.h"

/* One process is one rank. */
static struct {
    pthread_mutex_t lock;               /* of everything that is sent */
    pthread_t       beat;
    int             fd;                 /* -1: nobody listens */
    bool            leaving;            /* the end of the connection is no surprise */
    char            phase[96];
    uint64_t        phases, collectives;
    const char     *last;               /* collective */
    int64_t         saved_before;
    void          (*on_phase)(void *ctx);
    void           *on_phase_ctx;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .phase = "start-up", .last = "",
          .saved_before = -1};

/* A beat that the full socket refuses may be lost, but an error or a goodbye must arrive. */
static bool send_message(struct control_message *m, bool wait)
{
    ssize_t n;

    m->version = CONTROL_VERSION;
    pthread_mutex_lock(&self.lock);
    do
        n = send(self.fd, m, sizeof *m, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    pthread_mutex_unlock(&self.lock);
    return n == (ssize_t)sizeof *m;
}

/* The supervisor has died, and this process is about to be killed for it: nobody hears of it. */
static void orphaned(void) { _exit(ckpt_err_status(CKPT_ECOMM)); }

/* Data that this process has written and read from disks, in MiB: a save and a load have no
 * collective for as long as they take. */
static uint64_t moved_mib(void)
{
    FILE *f = fopen("/proc/self/io", "re");
    char line[64];
    uint64_t bytes = 0;

    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "wchar: ", 7) == 0 || strncmp(line, "read_bytes: ", 12) == 0)
            bytes += strtoull(strchr(line, ' '), NULL, 10);
    if (f)
        fclose(f);
    return bytes >> 20;
}

struct report_progress report_progress_now(void)
{
    struct report_progress p = {
        .collectives = __atomic_load_n(&self.collectives, __ATOMIC_RELAXED),
        .last = __atomic_load_n(&self.last, __ATOMIC_RELAXED),
    };

    p.done = p.collectives + __atomic_load_n(&self.phases, __ATOMIC_RELAXED) +
             ckpt_log_progress_calls() + moved_mib();
    return p;
}

void report_collective(const char *name)
{
    __atomic_store_n(&self.last, name, __ATOMIC_RELAXED);
    __atomic_add_fetch(&self.collectives, 1, __ATOMIC_RELAXED);
}

void report_part(void) { __atomic_add_fetch(&self.phases, 1, __ATOMIC_RELAXED); }

static void send_beat(void)
{
    struct report_progress p = report_progress_now();
    struct control_message m = {.kind = CONTROL_BEAT, .progress = p.done,
                                .collectives = p.collectives};

    snprintf(m.text, sizeof m.text, "%s", p.last);
    send_message(&m, false);
}

static void *beat(void *unused)
{
    struct pollfd p = {.fd = self.fd, .events = POLLIN};

    (void)unused;
    while (!__atomic_load_n(&self.leaving, __ATOMIC_ACQUIRE)) {
        struct control_message m;

        if (poll(&p, 1, CONTROL_BEAT_MS) > 0 &&
            recv(self.fd, &m, sizeof m, MSG_DONTWAIT) <= 0 && errno != EAGAIN && errno != EINTR) {
            if (!__atomic_load_n(&self.leaving, __ATOMIC_ACQUIRE))
                orphaned();
            break;
        }
        send_beat();
    }
    return unused;
}

/* Signals are the main thread's. */
static int start_beat(struct ckpt_err *err)
{
    sigset_t all, was;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &was);
    rc = pthread_create(&self.beat, NULL, beat, NULL);
    pthread_sigmask(SIG_SETMASK, &was, NULL);
    return rc ? ckpt_fail_errno(err, CKPT_ENOMEM, rc, "a thread") : 0;
}

/* The step in CKPT_SAVED, which child processes of this one are not to see. */
static void take_saved(void)
{
    const char *text = getenv(CONTROL_SAVED_ENV);

    if (text && *text >= '0' && *text <= '9')
        self.saved_before = strtoll(text, NULL, 10);
    unsetenv(CONTROL_SAVED_ENV);
}

int64_t report_saved_before(void) { return self.saved_before; }

int report_open(struct ckpt_err *err)
{
    const char *text = getenv(CONTROL_ENV);
    char *end = NULL;
    int type = 0, rc;
    socklen_t size = sizeof type;
    long fd;

    if (!text)
        return 0;
    fd = strtol(text, &end, 10);
    if (end == text || *end || fd < 3 || fd > 1 << 20 ||
        getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) || type != SOCK_SEQPACKET ||
        fcntl((int)fd, F_SETFD, FD_CLOEXEC))
        return ckpt_fail(err, CKPT_ECONFIG, "%s: no supervisor is named in it", CONTROL_ENV);
    unsetenv(CONTROL_ENV);
    take_saved();
    self.fd = (int)fd;
    if ((rc = start_beat(err)) != 0) {
        close(self.fd);
        self.fd = -1;
    }
    return rc;
}

bool report_watched(void) { return self.fd >= 0; }

/* m names the phase, unless its text is empty. */
static void enter(struct control_message *m, bool wait)
{
    m->kind = CONTROL_PHASE;
    __atomic_add_fetch(&self.phases, 1, __ATOMIC_RELAXED);
    pthread_mutex_lock(&self.lock);
    if (m->text[0])
        memcpy(self.phase, m->text, sizeof self.phase);
    pthread_mutex_unlock(&self.lock);
    if (self.on_phase)
        self.on_phase(self.on_phase_ctx);
    if (self.fd >= 0)
        send_message(m, wait);
}

void report_phase(const char *fmt, ...)
{
    struct control_message m = {.value = CONTROL_OTHER};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, ap);
    va_end(ap);
    enter(&m, false);
}

void report_on_phase(void (*call)(void *ctx), void *ctx)
{
    self.on_phase_ctx = ctx;
    self.on_phase = call;
}

void report_step(enum control_stage stage, int64_t step)
{
    static const char *const words[] = {
        [CONTROL_TRAIN] = "train step", [CONTROL_SAVE] = "save of step"
    };
    struct control_message m = {.value = (int32_t)stage, .step = step};

    if (stage == CONTROL_TRAIN || stage == CONTROL_SAVE)
        snprintf(m.text, sizeof m.text, "%s %lld", words[stage], (long long)step);
    enter(&m, stage != CONTROL_TRAIN);  /* another try starts from what was saved */
}

void report_phase_now(char *out, size_t size)
{
    pthread_mutex_lock(&self.lock);
    snprintf(out, size, "%s", self.phase);
    pthread_mutex_unlock(&self.lock);
}

bool report_error(const struct ckpt_err *err, bool agreed)
{
    struct control_message m = {.kind = CONTROL_ERROR, .value = agreed};

    if (self.fd < 0)
        return false;
    m.err = *err;
    return send_message(&m, true);
}

int report_close(int status)
{
    struct control_message m = {.kind = CONTROL_BYE, .value = status};

    if (self.fd < 0)
        return status;
    __atomic_store_n(&self.leaving, true, __ATOMIC_RELEASE);
    send_message(&m, true);
    shutdown(self.fd, SHUT_RD);         /* wakes the thread */
    pthread_join(self.beat, NULL);
    close(self.fd);
    self.fd = -1;
    return status;
}
