/* comm/store_server - see store_server.h. */
#include "trainer/comm/store_server.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "libckpt/base/buf.h"
#include "libckpt/mem.h"
#include "trainer/clock.h"
#include "trainer/comm/store.h"
#include "trainer/comm/store_keys.h"

#define MAX_CLIENTS  8192           /* two for each of 4096 ranks */
#define STRANGER_MS  10000
#define MAX_PENDING  (STORE_MAX_VALUE * 4 + (1u << 20))     /* bytes of one request, or answers */

static const struct store_bytes nothing;

enum trust { STRANGER, VALID, KNOWN };      /* VALID: the word is still to be said */

struct client {
    int             fd;
    enum trust      trust;
    int64_t         since_ms;
    struct ckpt_buf in, out;
    size_t          sent;           /* of out */
    struct store_bytes waits;       /* the keys of a WAIT without an answer yet, as they came */
    size_t          n_waits;
};

struct store_server {
    int              listener, wake;
    uint16_t         port;
    char             word[128];
    pthread_t        thread;
    struct client   *client;        /* [n_clients] */
    size_t           n_clients, cap_clients;
    struct pollfd   *poll;          /* [cap_clients + 2] */
    struct store_keys *keys;
};

/* -- requests --------------------------------------------------------------------------------- */

/* The fields of one request: keys and values in pairs where it has several. */
struct fields {
    struct store_bytes key, value, desired;
    int64_t      number;
    struct store_bytes list;              /* n keys, or n keys and values, as they came */
    uint64_t     n;
};

static struct store_bytes take_bytes(struct ckpt_cursor *c, uint64_t max)
{
    uint64_t n = ckpt_cursor_u64le(c);

    if (n > max)
        c->failed = true;
    return (struct store_bytes){n && !c->failed ? ckpt_cursor_bytes(c, (size_t)n) : NULL,
                                (size_t)n};
}

static bool all_set(struct store_server *s, struct store_bytes list, uint64_t n)
{
    struct ckpt_cursor c;
    bool all = true;

    ckpt_cursor_init(&c, list.p, list.n);
    for (uint64_t i = 0; i < n && all; i++)
        all = store_keys_find(s->keys, take_bytes(&c, STORE_MAX_KEY)) != NULL;
    return all;
}

static void put_value(struct client *c, const struct store_entry *e)
{
    ckpt_buf_put_u64le(&c->out, e ? e->n : 0);
    if (e)
        ckpt_buf_put(&c->out, e->value, e->n);
}

static bool do_set(struct store_server *s, struct client *c, const struct fields *f)
{
    (void)c;
    return store_keys_put(s->keys, f->key, f->value, nothing);
}

/* The value is replaced when it is the one expected; an absent key is one of no bytes. */
static bool do_compare_set(struct store_server *s, struct client *c, const struct fields *f)
{
    const struct store_entry *e = store_keys_find(s->keys, f->key);

    if (!e && f->value.n) {
        ckpt_buf_put_u64le(&c->out, f->value.n);    /* as torch's server answers */
        ckpt_buf_put(&c->out, f->value.p, f->value.n);
        return true;
    }
    if ((!e || (e->n == f->value.n && (!e->n || memcmp(e->value, f->value.p, e->n) == 0))) &&
        !store_keys_put(s->keys, f->key, f->desired, nothing))
        return false;
    put_value(c, store_keys_find(s->keys, f->key));
    return true;
}

static bool do_get(struct store_server *s, struct client *c, const struct fields *f)
{
    put_value(c, store_keys_find(s->keys, f->key));
    return true;
}

static bool do_add(struct store_server *s, struct client *c, const struct fields *f)
{
    const struct store_entry *e = store_keys_find(s->keys, f->key);
    char text[32], *end = text;
    int64_t sum = 0;

    if (e) {
        if (e->n == 0 || e->n >= sizeof text)
            return false;
        memcpy(text, e->value, e->n);
        text[e->n] = '\0';
        errno = 0;
        sum = strtoll(text, &end, 10);
        if (*end || errno)
            return false;
    }
    if (__builtin_add_overflow(sum, f->number, &sum))
        return false;
    snprintf(text, sizeof text, "%" PRId64, sum);
    ckpt_buf_put_u64le(&c->out, (uint64_t)sum);
    return store_keys_put(s->keys, f->key,
                          (struct store_bytes){(unsigned char *)text, strlen(text)}, nothing);
}

static bool do_check(struct store_server *s, struct client *c, const struct fields *f)
{
    ckpt_buf_put_u8(&c->out, !all_set(s, f->list, f->n));
    return true;
}

static bool do_wait(struct store_server *s, struct client *c, const struct fields *f)
{
    unsigned char *keys;

    if (all_set(s, f->list, f->n)) {
        ckpt_buf_put_u8(&c->out, 0);
        return true;
    }
    if (c->waits.p)
        return false;               /* one wait at a time */
    keys = ckpt_alloc(f->list.n, 1);
    if (!keys)
        return false;
    memcpy(keys, f->list.p, f->list.n);
    c->waits = (struct store_bytes){keys, f->list.n};
    c->n_waits = (size_t)f->n;
    return true;
}

static void end_wait(struct client *c)
{
    ckpt_free((void *)(uintptr_t)c->waits.p);
    c->waits = (struct store_bytes){0};
}

static bool do_count(struct store_server *s, struct client *c, const struct fields *f)
{
    (void)f;
    ckpt_buf_put_u64le(&c->out, store_keys_count(s->keys));
    return true;
}

static bool do_delete(struct store_server *s, struct client *c, const struct fields *f)
{
    ckpt_buf_put_u64le(&c->out, (uint64_t)store_keys_delete(s->keys, f->key));
    return true;
}

static bool do_append(struct store_server *s, struct client *c, const struct fields *f)
{
    const struct store_entry *e = store_keys_find(s->keys, f->key);

    (void)c;
    return store_keys_put(s->keys, f->key,
                          e ? (struct store_bytes){e->value, e->n} : nothing, f->value);
}

static bool do_multi_get(struct store_server *s, struct client *c, const struct fields *f)
{
    struct ckpt_cursor at;

    ckpt_cursor_init(&at, f->list.p, f->list.n);
    for (uint64_t i = 0; i < f->n; i++)
        put_value(c, store_keys_find(s->keys, take_bytes(&at, STORE_MAX_KEY)));
    return true;
}

static bool do_multi_set(struct store_server *s, struct client *c, const struct fields *f)
{
    struct ckpt_cursor at;

    (void)c;
    ckpt_cursor_init(&at, f->list.p, f->list.n);
    for (uint64_t i = 0; i < f->n; i++) {
        struct store_bytes key = take_bytes(&at, STORE_MAX_KEY);

        if (!store_keys_put(s->keys, key, take_bytes(&at, STORE_MAX_VALUE), nothing))
            return false;
    }
    return true;
}

static bool do_cancel(struct store_server *s, struct client *c, const struct fields *f)
{
    (void)s;
    (void)f;
    end_wait(c);
    ckpt_buf_put_u8(&c->out, 1);
    return true;
}

static bool do_ping(struct store_server *s, struct client *c, const struct fields *f)
{
    (void)s;
    ckpt_buf_put_u32le(&c->out, (uint32_t)f->number);
    return true;
}

static bool do_validate(struct store_server *s, struct client *c, const struct fields *f)
{
    if (c->trust != STRANGER || (uint32_t)f->number != STORE_MAGIC)
        return false;
    c->trust = *s->word ? VALID : KNOWN;
    return true;
}

/* fields: k a key, v a value, d a desired value, i an i64, u a u32, K keys, P pairs. */
static const struct {
    const char *fields;
    bool      (*answer)(struct store_server *s, struct client *c, const struct fields *f);
    bool        changes;            /* those who wait are looked at */
} requests[] = {
    [STORE_VALIDATE] = {"u", do_validate, false},
    [STORE_SET] = {"kv", do_set, true},
    [STORE_COMPARE_SET] = {"kvd", do_compare_set, true},
    [STORE_GET] = {"k", do_get, false},
    [STORE_ADD] = {"ki", do_add, true},
    [STORE_CHECK] = {"K", do_check, false},
    [STORE_WAIT] = {"K", do_wait, false},
    [STORE_GETNUMKEYS] = {"", do_count, false},
    [STORE_DELETE_KEY] = {"k", do_delete, false},
    [STORE_APPEND] = {"kv", do_append, true},
    [STORE_MULTI_GET] = {"K", do_multi_get, false},
    [STORE_MULTI_SET] = {"P", do_multi_set, true},
    [STORE_CANCEL_WAIT] = {"", do_cancel, false},
    [STORE_PING] = {"u", do_ping, false},
};

#define N_REQUESTS (sizeof requests / sizeof *requests)

/* The length a field announces at the cursor is within its limit; more bytes may be to come. */
static bool plausible(const struct ckpt_cursor *c, uint64_t max)
{
    struct ckpt_cursor at = *c;
    uint64_t n = ckpt_cursor_u64le(&at);

    return at.failed || n <= max;
}

/* 1: one request is in f; 0: not all of it has come; -1: it is none. */
static int parse(struct fields *f, struct ckpt_cursor *c, const char *fields)
{
    for (; *fields; fields++) {
        bool pairs = *fields == 'P', list = pairs || *fields == 'K';
        bool value = *fields == 'v' || *fields == 'd';

        if (*fields == 'i')
            f->number = (int64_t)ckpt_cursor_u64le(c);
        else if (*fields == 'u')
            f->number = ckpt_cursor_u32le(c);
        else if (!plausible(c, list ? STORE_MAX_KEYS : value ? STORE_MAX_VALUE : STORE_MAX_KEY))
            return -1;
        else if (!list)
            *(*fields == 'k' ? &f->key : value && *fields == 'v' ? &f->value : &f->desired) =
                take_bytes(c, STORE_MAX_VALUE);
        else {
            f->n = ckpt_cursor_u64le(c);
            f->list.p = c->base + c->pos;
            for (uint64_t i = 0; i < f->n * (pairs ? 2 : 1) && !c->failed; i++) {
                uint64_t max = pairs && i % 2 ? STORE_MAX_VALUE : STORE_MAX_KEY;

                if (!plausible(c, max))
                    return -1;
                take_bytes(c, max);
            }
            f->list.n = (size_t)(c->base + c->pos - f->list.p);
        }
        if (c->failed)
            return 0;
    }
    return 1;
}

static bool says_word(const struct store_server *s, unsigned kind, const struct fields *f)
{
    return kind == STORE_SET && f->key.n == strlen(STORE_WORD_KEY) &&
           memcmp(f->key.p, STORE_WORD_KEY, f->key.n) == 0 && f->value.n == strlen(s->word) &&
           CRYPTO_memcmp(f->value.p, s->word, f->value.n) == 0;
}

static void wake_waiting(struct store_server *s)
{
    for (size_t i = 0; i < s->n_clients; i++) {
        struct client *c = &s->client[i];

        if (c->waits.p && all_set(s, c->waits, c->n_waits)) {
            end_wait(c);
            ckpt_buf_put_u8(&c->out, 0);
        }
    }
}

/* Answer what has come whole.  False: the connection ends. */
static bool serve(struct store_server *s, struct client *c)
{
    size_t done = 0;

    while (done < c->in.len) {
        struct fields f = {0};
        struct ckpt_cursor at;
        unsigned kind = c->in.data[done];
        int whole;

        if (kind >= N_REQUESTS || (c->trust == STRANGER && kind != STORE_VALIDATE))
            return false;
        ckpt_cursor_init(&at, c->in.data + done + 1, c->in.len - done - 1);
        whole = parse(&f, &at, requests[kind].fields);
        if (whole < 0)
            return false;
        if (whole == 0)
            break;
        done += 1 + at.pos;
        if (c->trust == VALID) {
            if (!says_word(s, kind, &f))
                return false;
            c->trust = KNOWN;
        } else if (!requests[kind].answer(s, c, &f)) {
            return false;
        }
        if (requests[kind].changes)
            wake_waiting(s);
        if (!ckpt_buf_ok(&c->out))
            return false;
    }
    if (done) {
        memmove(c->in.data, c->in.data + done, c->in.len - done);
        c->in.len -= done;
    }
    return true;
}

/* -- connections ------------------------------------------------------------------------------ */

static void drop(struct client *c)
{
    assert(c);
    close(c->fd);
    end_wait(c);
    ckpt_buf_release(&c->in);
    ckpt_buf_release(&c->out);
}

static void welcome(struct store_server *s)
{
    int fd = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), on = 1;
    struct client *c;

    if (fd < 0)
        return;
    if (s->n_clients == s->cap_clients) {
        size_t cap = 2 * s->cap_clients;
        struct client *more = cap <= MAX_CLIENTS ? ckpt_grow(s->client, cap, sizeof *more) : NULL;
        struct pollfd *polls = NULL;

        if (more)
            s->client = more;
        polls = more ? ckpt_grow(s->poll, cap + 2, sizeof *polls) : NULL;
        if (polls) {
            s->poll = polls;
            s->cap_clients = cap;
        } else {
            close(fd);
            return;
        }
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c = &s->client[s->n_clients++];
    *c = (struct client){.fd = fd, .since_ms = clock_ms()};
    ckpt_buf_init(&c->in, MAX_PENDING);
    ckpt_buf_init(&c->out, MAX_PENDING);
}

static bool read_some(struct client *c)
{
    unsigned char block[65536];
    ssize_t n = recv(c->fd, block, sizeof block, 0);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    ckpt_buf_put(&c->in, block, (size_t)n);
    return n > 0 && ckpt_buf_ok(&c->in);
}

static bool write_some(struct client *c)
{
    ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)n;
    if (c->sent == c->out.len)
        c->sent = c->out.len = 0;
    return true;
}

/* One look at every connection; those that ended are dropped. */
static void look(struct store_server *s, size_t n)
{
    int64_t now = clock_ms();
    size_t kept = 0;

    for (size_t i = 0; i < s->n_clients; i++) {
        struct client *c = &s->client[i];
        bool stays = true;

        if (i < n && s->poll[i + 2].revents & (POLLIN | POLLHUP | POLLERR))
            stays = read_some(c) && serve(s, c);
        if (c->trust != KNOWN && now - c->since_ms > STRANGER_MS)
            stays = false;
        if (!stays)
            drop(c), c->fd = -1;
    }
    for (size_t i = 0; i < s->n_clients; i++) {     /* a set may have answered any of them */
        struct client *c = &s->client[i];

        if (c->fd >= 0 && c->out.len && !write_some(c))
            drop(c), c->fd = -1;
        if (c->fd >= 0)
            s->client[kept++] = *c;
    }
    s->n_clients = kept;
}

static void *run(void *arg)
{
    struct store_server *s = arg;

    for (;;) {
        size_t n = s->n_clients;

        s->poll[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
        s->poll[1] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        for (size_t i = 0; i < n; i++)
            s->poll[i + 2] = (struct pollfd){
                .fd = s->client[i].fd,
                .events = (short)(POLLIN | (s->client[i].out.len ? POLLOUT : 0))};
        if (poll(s->poll, (nfds_t)(n + 2), 1000) < 0 && errno != EINTR)
            break;
        if (s->poll[0].revents)
            break;
        look(s, n);
        if (s->poll[1].revents)
            welcome(s);
    }
    return NULL;
}

/* -- opening ---------------------------------------------------------------------------------- */

static int listen_on(struct store_server *s, const char *host, uint16_t port, struct ckpt_err *err)
{
    const struct addrinfo want = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    union { struct sockaddr any; struct sockaddr_in v4; struct sockaddr_in6 v6; } a = {0};
    struct addrinfo *list;
    socklen_t size = sizeof a;
    char text[8];
    int rc, why = 0, on = 1;

    snprintf(text, sizeof text, "%u", (unsigned)port);
    rc = getaddrinfo(host, text, &want, &list);
    if (rc)
        return ckpt_fail_as(err, CKPT_ECONFIG, STORE_SERVER_ELSEWHERE, "store at %.255s:%s: %s",
                            host, text, gai_strerror(rc));
    for (struct addrinfo *l = list; l && s->listener < 0; l = l->ai_next) {
        int fd = socket(l->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd >= 0)
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (fd >= 0 && bind(fd, l->ai_addr, l->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
            s->listener = fd;
        } else {
            why = errno;
            if (fd >= 0)
                close(fd);
        }
    }
    freeaddrinfo(list);
    if (s->listener < 0 && (why == EMFILE || why == ENFILE || why == ENOMEM))
        return ckpt_fail_errno(err, CKPT_ENOMEM, why, "store at %.255s:%s", host, text);
    if (s->listener < 0) {
        ckpt_fail_as(err, CKPT_ECONFIG,
                     why == EADDRNOTAVAIL ? STORE_SERVER_ELSEWHERE : "configuration",
                     "store at %.255s:%s: cannot listen: %s", host, text, strerror(why));
        return ckpt_err_hint(err, why == EADDRINUSE ? "another job may hold this port: choose "
                             "another MASTER_PORT" : "MASTER_ADDR is the address of rank 0's host");
    }
    if (getsockname(s->listener, &a.any, &size) < 0)
        return ckpt_fail_errno(err, CKPT_EIO, errno, "store at %.255s:%s", host, text);
    s->port = ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
    return 0;
}

int store_server_open(struct store_server **out, const char *host, uint16_t port,
                      const char *word, struct ckpt_err *err)
{
    struct store_server *s = ckpt_alloc(1, sizeof *s);
    sigset_t all, before;
    int rc;

    *out = NULL;
    if (!s)
        return ckpt_nomem(err, sizeof *s);
    s->listener = -1;
    s->cap_clients = 16;
    snprintf(s->word, sizeof s->word, "%s", word ? word : "");
    s->wake = eventfd(0, EFD_CLOEXEC);
    s->client = ckpt_alloc(s->cap_clients, sizeof *s->client);
    s->poll = ckpt_alloc(s->cap_clients + 2, sizeof *s->poll);
    rc = s->wake < 0 ? ckpt_fail_errno(err, CKPT_ENOMEM, errno, "store") : 0;
    if (rc == 0 && (!s->client || !s->poll))
        rc = ckpt_nomem(err, sizeof *s);
    rc = rc ? rc : store_keys_new(&s->keys, err);
    if (rc == 0)
        rc = listen_on(s, host, port, err);
    if (rc == 0) {
        sigfillset(&all);           /* signals are the program's, not this thread's */
        pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&s->thread, NULL, run, s);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (rc)
            rc = ckpt_fail_errno(err, CKPT_ENOMEM, rc, "store: no thread");
        else
            *out = s;
    }
    if (rc) {
        s->thread = 0;
        store_server_close(s);
    }
    return rc;
}

uint16_t store_server_port(const struct store_server *s) { return s->port; }

void store_server_close(struct store_server *s)
{
    uint64_t one = 1;

    if (!s)
        return;
    if (s->thread && write(s->wake, &one, sizeof one) == (ssize_t)sizeof one)
        pthread_join(s->thread, NULL);
    for (size_t i = 0; i < s->n_clients; i++)
        drop(&s->client[i]);
    if (s->listener >= 0)
        close(s->listener);
    if (s->wake >= 0)
        close(s->wake);
    store_keys_free(s->keys);
    ckpt_free(s->client);
    ckpt_free(s->poll);
    ckpt_free(s);
}
