/* comm/store - see store.h. */
#include "trainer/comm/store.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/buf.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"

#define TRY_MS    5000          /* of one address, before its name is looked up again */
#define TELL_MS   3000          /* without a connection: then a line tells what is waited for */

struct store {
    int     fd;
    int64_t answer_ms;
    char    where[300];         /* HOST:PORT, for messages */
};

static const volatile int *stop_on;

void store_stop_on(const volatile int *stop) { stop_on = stop; }

static bool stopped(void) { return stop_on && *stop_on; }

static int fail_stopped(const struct store *s, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_ESTOPPED, "store at %s: stopped while the ranks were awaited",
                     s->where);
}

static int lost(const struct store *s, int errnum, struct ckpt_err *err)
{
    return errnum ? ckpt_fail_errno(err, CKPT_ECOMM, errnum, "store at %s: the connection is lost",
                                    s->where)
                  : ckpt_fail(err, CKPT_ECOMM, "store at %s: it closed the connection", s->where);
}

/* Wait until fd is ready; 1 when it is, 0 when the time is over or all is to stop. */
static int ready(int fd, short events, int64_t until)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        int64_t left = until - clock_ms();
        int n = poll(&p, 1, left < 0 ? 0 : left > 1000 ? 1000 : (int)left);

        if (n > 0)
            return 1;
        if ((n < 0 && errno != EINTR) || (n == 0 && left <= 0) || stopped())
            return 0;
    }
}

static int send_all(struct store *s, struct ckpt_buf *b, struct ckpt_err *err)
{
    size_t at = 0;
    int rc = ckpt_buf_ok(b) ? 0 : ckpt_nomem(err, b->len);

    while (rc == 0 && at < b->len) {
        ssize_t n = send(s->fd, b->data + at, b->len - at, MSG_NOSIGNAL);

        if (n >= 0)
            at += (size_t)n;
        else if (errno == EAGAIN && ready(s->fd, POLLOUT, clock_ms() + s->answer_ms))
            continue;
        else if (errno != EINTR)
            rc = lost(s, errno, err);
    }
    ckpt_buf_release(b);
    return rc;
}

/* n bytes of an answer; CKPT_ENOTFOUND when none has come until then. */
static int receive(struct store *s, void *dst, size_t n, int64_t until, struct ckpt_err *err)
{
    size_t at = 0;

    while (at < n) {
        ssize_t k;

        if (!ready(s->fd, POLLIN, at ? clock_ms() + s->answer_ms : until))
            return stopped() ? fail_stopped(s, err) : at ? lost(s, ETIMEDOUT, err)
                      : ckpt_fail(err, CKPT_ENOTFOUND, "store at %s: no answer in time", s->where);
        k = recv(s->fd, (char *)dst + at, n - at, 0);
        if (k > 0)
            at += (size_t)k;
        else if (k == 0 || (errno != EINTR && errno != EAGAIN))
            return lost(s, k ? errno : 0, err);
    }
    return 0;
}

static int answer(struct store *s, void *dst, size_t n, struct ckpt_err *err)
{
    int rc = receive(s, dst, n, clock_ms() + s->answer_ms, err);

    return rc == CKPT_ENOTFOUND ? lost(s, ETIMEDOUT, err) : rc;
}

static void put_bytes(struct ckpt_buf *b, const void *p, size_t n)
{
    ckpt_buf_put_u64le(b, n);
    ckpt_buf_put(b, p, n);
}

static struct ckpt_buf request(enum store_request kind)
{
    struct ckpt_buf b;

    ckpt_buf_init(&b, STORE_MAX_VALUE + 4 * STORE_MAX_KEY);
    ckpt_buf_put_u8(&b, (uint8_t)kind);
    return b;
}

/* One try at one address: a connected socket, or -1 with errno. */
static int connect_once(const struct addrinfo *a, int64_t until)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, why = 0;
    socklen_t size = sizeof why;

    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
        return fd;
    if (errno != EINPROGRESS)
        why = errno;
    else if (!ready(fd, POLLOUT, until))
        why = ETIMEDOUT;
    else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) < 0)
        why = errno;
    if (why == 0)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

/* One line, once, where somebody may wonder what is waited for. */
static void tell_wait(const struct store *s, int64_t *tell_at, int64_t until, const char *why)
{
    int64_t now = clock_ms();

    if (*tell_at == 0 || now < *tell_at)
        return;
    *tell_at = 0;
    ckpt_log(CKPT_LOG_WARNING, "waiting for the store at %s, %lld s more at most: %s", s->where,
             (long long)((until - now) / 1000), why);
}

/* The name may be known later, as that of a pod that is being started; and its address may be
 * another one then, so that no try lasts long, and each asks anew. */
static int connect_until(struct store *s, const char *host, const char *port, int64_t timeout_ms,
                         struct ckpt_err *err)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    int64_t now = clock_ms(), until = now + timeout_ms, tell_at = now + TELL_MS, pause_ms = 10;
    int no_address = 0, why = 0;

    for (;;) {
        struct addrinfo *list = NULL;

        no_address = getaddrinfo(host, port, &want, &list);
        for (struct addrinfo *a = list; !no_address && a && s->fd < 0; a = a->ai_next) {
            now = clock_ms();
            s->fd = connect_once(a, until < now + TRY_MS ? until : now + TRY_MS);
            if (s->fd < 0)
                why = errno;
        }
        if (!no_address)
            freeaddrinfo(list);
        if (s->fd >= 0)
            return 0;
        if (stopped())
            return fail_stopped(s, err);
        if (clock_ms() + pause_ms > until)
            break;
        tell_wait(s, &tell_at, until, no_address ? gai_strerror(no_address) : strerror(why));
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
        pause_ms = pause_ms < 500 ? 2 * pause_ms : 900;
    }
    if (no_address)
        return ckpt_fail(err, CKPT_ECONFIG, "store at %s: %s", s->where, gai_strerror(no_address));
    return ckpt_fail_errno(err, CKPT_ECOMM, why, "store at %s: nobody answered for %lld s",
                           s->where, (long long)(timeout_ms / 1000));
}

int store_open(struct store **out, const char *host, uint16_t port, const char *word,
               int64_t timeout_ms, struct ckpt_err *err)
{
    struct store *s = ckpt_alloc(1, sizeof *s);
    struct ckpt_buf b;
    char text[8];
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->fd = -1;
    s->answer_ms = STORE_ANSWER_MS;
    snprintf(text, sizeof text, "%u", (unsigned)port);
    snprintf(s->where, sizeof s->where, "%.255s:%s", host, text);
    rc = connect_until(s, host, text, timeout_ms, err);
    if (rc == 0) {
        b = request(STORE_VALIDATE);
        ckpt_buf_put_u32le(&b, STORE_MAGIC);
        rc = send_all(s, &b, err);
    }
    if (rc == 0 && word)
        rc = store_set(s, STORE_WORD_KEY, word, strlen(word), err);
    if (rc)
        store_close(s);
    else
        *out = s;
    return rc;
}

void store_close(struct store *s)
{
    if (s && s->fd >= 0)
        close(s->fd);
    ckpt_free(s);
}

void store_answers_within(struct store *s, int64_t ms) { s->answer_ms = ms; }

int store_set(struct store *s, const char *key, const void *value, size_t n, struct ckpt_err *err)
{
    struct ckpt_buf b = request(STORE_SET);

    put_bytes(&b, key, strlen(key));
    put_bytes(&b, value, n);
    return send_all(s, &b, err);
}

int store_add(struct store *s, const char *key, int64_t delta, int64_t *sum, struct ckpt_err *err)
{
    struct ckpt_buf b = request(STORE_ADD);
    int rc;

    put_bytes(&b, key, strlen(key));
    ckpt_buf_put_u64le(&b, (uint64_t)delta);
    rc = send_all(s, &b, err);
    return rc ? rc : answer(s, sum, sizeof *sum, err);
}

int store_has(struct store *s, const char *key, struct ckpt_err *err)
{
    struct ckpt_buf b = request(STORE_CHECK);
    uint8_t not_yet;
    int rc;

    ckpt_buf_put_u64le(&b, 1);
    put_bytes(&b, key, strlen(key));
    rc = send_all(s, &b, err);
    if (rc == 0)
        rc = answer(s, &not_yet, 1, err);
    return rc ? rc : not_yet == 0;
}

/* CKPT_ENOTFOUND when the time is over; the wait is taken back then. */
static int wait_for(struct store *s, const char *key, int64_t timeout_ms, struct ckpt_err *err)
{
    struct ckpt_buf b = request(STORE_WAIT);
    uint8_t said;
    int rc;

    ckpt_buf_put_u64le(&b, 1);
    put_bytes(&b, key, strlen(key));
    rc = send_all(s, &b, err);
    if (rc == 0)
        rc = receive(s, &said, 1, clock_ms() + timeout_ms, err);
    if (rc != CKPT_ENOTFOUND)
        return rc;
    b = request(STORE_CANCEL_WAIT);
    rc = send_all(s, &b, err);
    /* The key may have come in between: its answer stands before that of the cancelling. */
    for (said = 0; rc == 0 && said != 1;)
        rc = answer(s, &said, 1, err);
    return rc ? rc : ckpt_fail(err, CKPT_ENOTFOUND, "store at %s: no %s within %lld s", s->where,
                               key, (long long)(timeout_ms / 1000));
}

int store_get(struct store *s, const char *key, void *value, size_t max, size_t *n,
              int64_t timeout_ms, struct ckpt_err *err)
{
    struct ckpt_buf b;
    uint64_t len;
    int rc = wait_for(s, key, timeout_ms, err);

    if (rc)
        return rc;
    b = request(STORE_GET);
    put_bytes(&b, key, strlen(key));
    rc = send_all(s, &b, err);
    if (rc == 0)
        rc = answer(s, &len, sizeof len, err);
    if (rc)
        return rc;
    if (len > max)
        return ckpt_fail(err, CKPT_ELIMIT, "store at %s: %s has %llu bytes, at most %zu expected",
                         s->where, key, (unsigned long long)len, max);
    *n = (size_t)len;
    return answer(s, value, *n, err);
}

int store_own_address(const struct store *s, char *out, size_t size, struct ckpt_err *err)
{
    struct sockaddr_storage a;
    socklen_t len = sizeof a;
    int rc;

    if (getsockname(s->fd, (struct sockaddr *)&a, &len) < 0)
        return lost(s, errno, err);
    rc = getnameinfo((struct sockaddr *)&a, len, out, (socklen_t)size, NULL, 0, NI_NUMERICHOST);
    return rc ? ckpt_fail(err, CKPT_ECOMM, "store at %s: %s", s->where, gai_strerror(rc)) : 0;
}
