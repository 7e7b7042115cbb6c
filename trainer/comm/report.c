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

#include "trainer/comm/control.h"

/* One process is one rank. */
static struct {
    pthread_mutex_t lock;               /* of everything that is sent */
    pthread_t       beat;
    int             fd;                 /* -1: nobody listens */
    bool            leaving;            /* the end of the connection is no surprise */
    char            phase[96];
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .phase = "start-up"};

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

static void *beat(void *unused)
{
    struct pollfd p = {.fd = self.fd, .events = POLLIN};

    (void)unused;
    while (!__atomic_load_n(&self.leaving, __ATOMIC_ACQUIRE)) {
        struct control_message m = {.kind = CONTROL_BEAT};

        if (poll(&p, 1, CONTROL_BEAT_MS) > 0 &&
            recv(self.fd, &m, sizeof m, MSG_DONTWAIT) <= 0 && errno != EAGAIN && errno != EINTR) {
            if (!__atomic_load_n(&self.leaving, __ATOMIC_ACQUIRE))
                orphaned();
            break;
        }
        m = (struct control_message){.kind = CONTROL_BEAT};
        send_message(&m, false);
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
    self.fd = (int)fd;
    if ((rc = start_beat(err)) != 0) {
        close(self.fd);
        self.fd = -1;
    }
    return rc;
}

bool report_watched(void) { return self.fd >= 0; }

void report_phase(const char *fmt, ...)
{
    struct control_message m = {.kind = CONTROL_PHASE};
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&self.lock);
    memcpy(self.phase, m.text, sizeof self.phase);
    pthread_mutex_unlock(&self.lock);
    if (self.fd >= 0)
        send_message(&m, false);
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
