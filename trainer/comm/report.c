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
#include <sys/un.h>
#include <unistd.h>

#include "libckpt/commit.h"
#include "trainer/comm/control.h"
#include "trainer/comm/ranks.h"

/* One process is one rank. */
static struct {
    pthread_mutex_t lock;               /* of everything that is sent */
    pthread_t       beat;
    int             fd;                 /* -1: nobody listens */
    bool            leaving;            /* the end of the connection is no surprise */
    int             rank;
    int             error[2];           /* standard error: the user's, the launcher's; 0: unknown */
    char            dir[108];           /* the supervisor's, where it has one for the ranks */
} self = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

/* A beat that the full socket refuses may be lost, but an error or a goodbye must arrive. */
static bool send_message(struct control_message *m, bool wait)
{
    ssize_t n;

    m->version = CONTROL_VERSION;
    m->rank = self.rank;
    pthread_mutex_lock(&self.lock);
    do
        n = send(self.fd, m, sizeof *m, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
    while (n < 0 && errno == EINTR);
    pthread_mutex_unlock(&self.lock);
    return n == (ssize_t)sizeof *m;
}

/* The supervisor has died: nobody would end this process, and nobody knows it.  Nor would anybody
 * remove its directory, which is in memory. */
static void orphaned(void)
{
    struct ckpt_err unused = {0};
    char line[96];
    int n = snprintf(line, sizeof line, "ckpt-train: rank %d: its supervisor is gone: ended\n",
                     self.rank);

    if (*self.dir)
        ckpt_outdir_remove(self.dir, &unused);
    if (write(STDERR_FILENO, line, (size_t)n) != n)
        _exit(ckpt_err_status(CKPT_EIO));
    _exit(ckpt_err_status(CKPT_ECOMM));
}

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

/* Take the standard streams that come with the welcome: output and error, for rank 0 input. */
static int take_streams(struct ckpt_err *err)
{
    union { char bytes[CMSG_SPACE(3 * sizeof(int))]; struct cmsghdr align; } ancillary;
    struct control_message m;
    struct iovec part = {.iov_base = &m, .iov_len = sizeof m};
    struct msghdr h = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = ancillary.bytes,
                       .msg_controllen = sizeof ancillary.bytes};
    struct cmsghdr *c;
    int fd[3], count = 0;
    ssize_t n;

    do
        n = recvmsg(self.fd, &h, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    c = n == (ssize_t)sizeof m ? CMSG_FIRSTHDR(&h) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    if (count < 2 || count > 3 || m.kind != CONTROL_WELCOME)
        return ckpt_fail(err, CKPT_ECOMM, "the supervisor of this rank did not answer");
    memcpy(fd, CMSG_DATA(c), (size_t)count * sizeof(int));
    self.error[1] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    self.error[0] = fcntl(fd[count - 1], F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < count; i++) {
        int to = i + 3 - count;         /* the last two are output and error */

        if (dup2(fd[i], to) != to)
            return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "standard streams");
        close(fd[i]);
    }
    return 0;
}

/* "WORD:PATH" to both; the environment does not keep the word. */
static int find(struct sockaddr_un *at, char word[CONTROL_WORD + 1], struct ckpt_err *err)
{
    const char *where = getenv(CONTROL_ENV);

    if (!where || strlen(where) <= CONTROL_WORD + 1 || where[CONTROL_WORD] != ':' ||
        strlen(where + CONTROL_WORD + 1) >= sizeof at->sun_path)
        return ckpt_fail(err, CKPT_ECONFIG, "%s: no supervisor is named in it", CONTROL_ENV);
    memcpy(word, where, CONTROL_WORD);
    word[CONTROL_WORD] = '\0';
    snprintf(at->sun_path, sizeof at->sun_path, "%s", where + CONTROL_WORD + 1);
    unsetenv(CONTROL_ENV);
    return 0;
}

/* DIR/control: the directory is the supervisor's own. */
static void keep_dir(const struct sockaddr_un *at)
{
    const char *slash = strrchr(at->sun_path, '/');

    if (slash && strcmp(slash, "/control") == 0)
        snprintf(self.dir, sizeof self.dir, "%.*s", (int)(slash - at->sun_path), at->sun_path);
}

int report_open(struct ckpt_err *err)
{
    struct control_message m = {.kind = CONTROL_HELLO};
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int rc;

    if (!getenv(CONTROL_ENV))
        return 0;
    if ((rc = find(&at, m.word, err)) != 0)
        return rc;
    self.rank = (int)ranks_found().rank;
    gethostname(m.text, sizeof m.text - 1);
    self.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (self.fd < 0)
        return ckpt_fail_errno(err, CKPT_ENOMEM, errno, "a socket");
    keep_dir(&at);
    if (connect(self.fd, (struct sockaddr *)&at, sizeof at) || !send_message(&m, true)) {
        rc = ckpt_fail_errno(err, CKPT_ECOMM, errno, "the supervisor of this rank is gone");
    } else if ((rc = take_streams(err)) == 0 && (rc = start_beat(err)) == 0) {
        report_phase("start-up");
        return 0;
    }
    close(self.fd);
    self.fd = -1;
    return rc;
}

void report_aside(bool on)
{
    if (self.error[0] > 0 && self.error[1] > 0)
        dup2(self.error[on], STDERR_FILENO);
}

bool report_watched(void) { return self.fd >= 0; }

void report_phase(const char *fmt, ...)
{
    struct control_message m = {.kind = CONTROL_PHASE};
    va_list ap;

    if (self.fd < 0)
        return;
    va_start(ap, fmt);
    vsnprintf(m.text, sizeof m.text, fmt, ap);
    va_end(ap);
    send_message(&m, false);
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
    bool sent;

    if (self.fd < 0)
        return status;
    __atomic_store_n(&self.leaving, true, __ATOMIC_RELEASE);
    sent = send_message(&m, true);
    shutdown(self.fd, SHUT_RD);         /* wakes the thread */
    pthread_join(self.beat, NULL);
    close(self.fd);
    self.fd = -1;
    return sent ? 0 : status;
}
