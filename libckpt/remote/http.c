/* http - see http.h. */
#include "libckpt/remote/http.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <time.h>

#include "libckpt/base/buf.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/base/secret.h"
#include "libckpt/remote/body.h"
#include "libckpt/remote/curl.h"
#include "libckpt/remote/http_try.h"

#define MAX_REDIRECTS 5
#define MAX_SECONDS   (15 * 60)         /* all tries and waits together */
#define FIRST_WAIT_MS 500u
#define LONGEST_MS    8000u
#define ANSWER_BYTES  ((uint64_t)1 << 20)
#define MAX_IDLE      16                /* idle handles kept, each with its connections */

struct http {
    const struct curl_calls *curl;
    pthread_mutex_t          lock;
    CURL                    *idle[MAX_IDLE];    /* a stack: the last used has a live connection */
    size_t                   n_idle;
    struct http_setting      set;
};

/*
 * One instance per process, to share its connections: any path may be an address, and functions
 * that take a path have no parameter for a network handle.
 */
static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static struct http *shared;
static const volatile int *stop_flag;

void http_stop_on(const volatile int *stop) { stop_flag = stop; }

int http_stopped(struct ckpt_err *err)
{
    return stop_flag && *stop_flag
               ? ckpt_fail(err, CKPT_ESTOPPED, "stopped by a signal before all was read") : 0;
}

bool http_env_true(const char *name)
{
    static const char *const words[] = {"1", "on", "yes", "true"};
    const char *v = getenv(name);

    for (size_t i = 0; v && i < sizeof words / sizeof words[0]; i++)
        if (strcasecmp(v, words[i]) == 0)
            return true;
    return false;
}

bool http_offline(void)
{
    return http_env_true("CKPT_OFFLINE") || http_env_true("HF_HUB_OFFLINE") ||
           http_env_true("TRANSFORMERS_OFFLINE");
}

/* A whole number in the environment, from low to high. */
static long env_number(const char *name, long fallback, long low, long high)
{
    const char *v = getenv(name);
    char *end;
    long n;

    if (!v || !*v)
        return fallback;
    n = strtol(v, &end, 10);
    return *end || n < low || n > high ? fallback : n;
}

static const char *env_path(const char *first, const char *second)
{
    const char *v = getenv(first);

    if (!v || !*v)
        v = getenv(second);
    return v && *v ? v : NULL;
}

struct http *http_shared(struct ckpt_err *err)
{
    const struct curl_calls *curl;
    struct http *h;

    pthread_mutex_lock(&shared_lock);
    if (!shared && curl_open(&curl, err) == 0) {
        shared = ckpt_alloc(1, sizeof *shared);
        if (!shared) {
            ckpt_nomem(err, sizeof *shared);
        } else {
            shared->curl = curl;
            pthread_mutex_init(&shared->lock, NULL);
            shared->set = (struct http_setting){
                .authorities = env_path("SSL_CERT_FILE", "CURL_CA_BUNDLE"),
                .stall_seconds = env_number("HF_HUB_DOWNLOAD_TIMEOUT", 20, 1, 3600),
                .retries = env_number("CKPT_HTTP_RETRIES", 5, 0, 100),
            };
        }
    }
    h = shared;
    pthread_mutex_unlock(&shared_lock);
    return h;
}

const char *http_authorities(const struct http *h) { return h->set.authorities; }

long http_tries(const struct http *h) { return 1 + h->set.retries; }

long http_patience(const struct http *h) { return h->set.stall_seconds; }

/* -- addresses -------------------------------------------------------------------------------- */

/* libcurl's parser is used, so that the host that is checked is the host that is connected to. */
static int part(char *out, size_t size, const struct curl_calls *c, CURLU *u, CURLUPart which,
                unsigned flags)
{
    char *text = NULL;
    int n = -1;

    if (c->url_get(u, which, &text, flags) == CURLUE_OK && text)
        n = snprintf(out, size, "%s", text);
    if (text)
        c->free(text);
    return n >= 0 && (size_t)n < size ? 0 : -1;
}

int http_origin(char out[512], const char *url, struct ckpt_err *err)
{
    const struct curl_calls *c;
    char scheme[16], host[400], port[8], user[8];
    CURLU *u;
    int rc = 0;

    if ((rc = curl_open(&c, err)) != 0)
        return rc;
    u = c->url();
    if (!u)
        return ckpt_nomem(err, 64);
    if (c->url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK ||
        part(scheme, sizeof scheme, c, u, CURLUPART_SCHEME, 0) ||
        part(host, sizeof host, c, u, CURLUPART_HOST, 0) ||
        part(port, sizeof port, c, u, CURLUPART_PORT, CURLU_DEFAULT_PORT) ||
        (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0))
        rc = ckpt_fail(err, CKPT_EUSAGE, "%.200s: is no address that can be read", url);
    else if (part(user, sizeof user, c, u, CURLUPART_USER, 0) == 0 ||
             part(user, sizeof user, c, u, CURLUPART_PASSWORD, 0) == 0)
        rc = ckpt_fail(err, CKPT_EUSAGE, "an address with a user or a password in it is not taken");
    c->url_cleanup(u);
    if (rc)
        return rc;
    for (char *p = host; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    snprintf(out, 512, "%s://%s:%s", scheme, host, port);
    return 0;
}

bool http_is_loopback(const char *url)
{
    struct ckpt_err ignored = {0};
    char origin[512];
    const char *host;

    if (http_origin(origin, url, &ignored))
        return false;
    host = strstr(origin, "://") + 3;
    return strncmp(host, "localhost:", 10) == 0 || strncmp(host, "[::1]:", 6) == 0 ||
           (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.:") == strlen(host));
}

int http_join(char out[HTTP_URL], const char *base, const char *rel, struct ckpt_err *err)
{
    const struct curl_calls *c;
    CURLU *u;
    int rc;

    if ((rc = curl_open(&c, err)) != 0)
        return rc;
    u = c->url();
    if (!u)
        return ckpt_nomem(err, 64);
    rc = c->url_set(u, CURLUPART_URL, base, 0) == CURLUE_OK &&
                 c->url_set(u, CURLUPART_URL, rel, 0) == CURLUE_OK
             ? part(out, HTTP_URL, c, u, CURLUPART_URL, 0) : -1;
    c->url_cleanup(u);
    return rc ? ckpt_fail(err, CKPT_EPROTOCOL, "the server names an address that is none") : 0;
}

bool http_escape(char *out, size_t size, const char *text, const char *keep)
{
    static const char digit[] = "0123456789ABCDEF";
    size_t n = 0;

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = (c < 128 && isalnum(c)) || strchr("-_.~", c) || strchr(keep, c);

        if (n + 4 > size)
            return false;
        if (plain) {
            out[n++] = (char)c;
        } else {
            out[n++] = '%';
            out[n++] = digit[c >> 4];
            out[n++] = digit[c & 15];
        }
    }
    out[n] = '\0';
    return true;
}

bool http_unescape(char *text)
{
    char *to = text;

    for (; *text; text++) {
        char hex[3] = "", *end;

        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        memcpy(hex, text + 1, strnlen(text + 1, 2));
        *to = (char)strtoul(hex, &end, 16);
        if (end != hex + 2 || !isxdigit((unsigned char)hex[0]) || !*to)
            return false;
        to++;
        text += 2;
    }
    *to = '\0';
    return true;
}

/* -- one after another ------------------------------------------------------------------------ */

static CURL *take_handle(struct http *h)
{
    CURL *e = NULL;

    pthread_mutex_lock(&h->lock);
    if (h->n_idle > 0)
        e = h->idle[--h->n_idle];
    pthread_mutex_unlock(&h->lock);
    return e ? e : h->curl->easy_init();
}

static void give_handle(struct http *h, CURL *e)
{
    pthread_mutex_lock(&h->lock);
    if (h->n_idle < MAX_IDLE) {
        h->idle[h->n_idle++] = e;
        e = NULL;
    }
    pthread_mutex_unlock(&h->lock);
    if (e)
        h->curl->easy_cleanup(e);
}

/* https must not become http; http is allowed only if the first address had it. */
static int check_hop(const struct http_try *t, const char *to, struct ckpt_err *err)
{
    char origin[512];

    if (http_origin(origin, to, err))
        return ckpt_fail(err, CKPT_EREFUSED, "%s: redirected to what is no https address", t->name);
    if (t->request->method && strcmp(origin, t->first) != 0)
        return ckpt_fail(err, CKPT_EREFUSED, "%s: redirected to another host, %.200s, which is not "
                         "sent to", t->name, origin);
    if (strncmp(origin, "http://", 7) == 0 && strncmp(t->first, "https://", 8) == 0)
        return ckpt_fail(err, CKPT_EREFUSED, "%s: redirected from https to http", t->name);
    return 0;
}

/* Keep what earlier redirects of the same try said about the file. */
static void keep_linked(struct http_answer *a, const struct http_answer *before)
{
    if (!a->linked_etag[0])
        memcpy(a->linked_etag, before->linked_etag, sizeof a->linked_etag);
    if (a->linked_size == FIELD_NONE)
        a->linked_size = before->linked_size;
    if (!a->commit[0])
        memcpy(a->commit, before->commit, sizeof a->commit);
}

/* One try, following redirects.  Returns as http_try does. */
static enum http_end follow(struct http *h, struct http_try *t, struct http_answer *a,
                            struct ckpt_err *err)
{
    struct http_answer before;
    enum http_end end = HTTP_FAILED;
    CURL *e = take_handle(h);

    if (!e) {
        ckpt_nomem(err, 1 << 14);
        return HTTP_FAILED;
    }
    snprintf(t->url, sizeof t->url, "%s", t->request->url);
    t->is_private = false;
    field_clear(&before);
    for (t->hop = 0;; t->hop++) {
        end = http_try(t, h->curl, e, &h->set, a, err);
        keep_linked(a, &before);
        before = *a;
        if (end != HTTP_REDIRECTED)
            break;
        if (t->hop == MAX_REDIRECTS) {
            ckpt_fail(err, CKPT_EPROTOCOL, "%s: more than %d redirects", t->name, MAX_REDIRECTS);
            end = HTTP_FAILED;
            break;
        }
        if (check_hop(t, t->to, err)) {
            end = HTTP_FAILED;
            break;
        }
        memcpy(t->url, t->to, sizeof t->url);
    }
    give_handle(h, e);
    return end;
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Milliseconds until the next try: the server's value, else doubling with jitter. */
static uint64_t wait_ms(const struct http *h, const struct http_answer *a, long tries)
{
    uint64_t most = FIRST_WAIT_MS, r = 0;
    time_t date = a->date[0] ? h->curl->getdate(a->date, NULL) : -1, now = time(NULL);

    if (a->wait != FIELD_NONE)
        return a->wait > MAX_SECONDS ? (uint64_t)MAX_SECONDS * 1000 + 1 : a->wait * 1000;
    if (date >= 0)
        return date > now + MAX_SECONDS ? (uint64_t)MAX_SECONDS * 1000 + 1
                                        : date > now ? (uint64_t)(date - now) * 1000 : 0;
    while (tries-- > 1 && most < LONGEST_MS)
        most *= 2;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != sizeof r)
        r = now_ms();
    return most / 2 + r % (most / 2 + 1);
}

/* Sleep in slices, so that a signal ends it. */
static int sleep_ms(uint64_t ms, struct ckpt_err *err)
{
    uint64_t end = now_ms() + ms, now;
    int rc;

    while ((now = now_ms()) < end) {
        uint64_t k = end - now < 100 ? end - now : 100;

        if ((rc = http_stopped(err)) != 0)
            return rc;
        nanosleep(&(struct timespec){.tv_nsec = (long)k * 1000000}, NULL);
    }
    return http_stopped(err);
}

static http_retry_fn *retry_fn;
static void *retry_ctx;

void http_on_retry(http_retry_fn *fn, void *ctx)
{
    retry_ctx = ctx;
    retry_fn = fn;
}

/* Wait for another try, or fail with the error of the last one. */
static int try_again(struct http *h, const struct http_try *t, const struct http_answer *a,
                     long tries, uint64_t began, struct ckpt_err *err)
{
    /* A host that cannot be reached gets few tries. */
    long most = t->unreachable && h->set.retries > 2 ? 2 : h->set.retries;
    uint64_t ms = wait_ms(h, a, tries), gone = now_ms() - began;

    if (tries > most || gone + ms > (uint64_t)MAX_SECONDS * 1000) {
        char text[sizeof err->text];

        snprintf(text, sizeof text, "%s", err->text);
        if (t->unreachable)
            return ckpt_fail(err, CKPT_EDEVICE, "%s", text);
        if (tries > most)
            return ckpt_fail_as(err, CKPT_ESTOPPED, "retries", "%s, at the last of %ld tries", text,
                                tries);
        return ckpt_fail_as(err, CKPT_ESTOPPED, "retries",
                            "%s, and another try would come after more than %d minutes", text,
                            MAX_SECONDS / 60);
    }
    if (retry_fn)
        retry_fn(retry_ctx, err->text, tries + 1, most + 1, ms);
    else
        ckpt_log(CKPT_LOG_NOTE, "%s; try %ld of %ld in %.1f s", err->text, tries + 1, most + 1,
                 (double)ms / 1000);
    ckpt_err_clear(err);
    return sleep_ms(ms, err);
}

int http_again(struct http *h, long tries, uint64_t *began, struct ckpt_err *err)
{
    struct http_try t = {.unreachable = err->code == CKPT_EDEVICE};
    struct http_answer none;

    field_clear(&none);
    if (!*began)
        *began = now_ms();
    return try_again(h, &t, &none, tries, *began, err);
}

int http_get(struct http *h, const struct http_request *r, struct http_answer *answer,
             struct ckpt_err *err)
{
    struct http_try *t = ckpt_alloc(1, sizeof *t);
    uint64_t began = now_ms();
    enum http_end end = HTTP_AGAIN;
    int rc = 0;

    field_clear(answer);
    if (!t)
        return ckpt_nomem(err, sizeof *t);
    if (r->auth && r->auth->secret)
        ckpt_secret_add(r->auth->secret);
    t->request = r;
    t->stop = stop_flag;
    snprintf(t->shown, sizeof t->shown, "%.*s", (int)strcspn(r->url, "?#"), r->url);
    t->name = r->name ? r->name : t->shown;
    ckpt_err_clear(err);
    if (strlen(r->url) >= sizeof t->url)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%.100s: an address of %zu bytes", t->name,
                       strlen(r->url));
    else if (http_offline())
        rc = ckpt_fail_as(err, CKPT_EDEVICE, "offline", "%s: is not in the cache, and nothing is "
                          "asked for offline", t->name);
    else if (http_origin(t->first, r->url, err))
        rc = ckpt_err_in(err, "%s", t->name);
    for (long tries = 1; rc == 0 && end == HTTP_AGAIN; tries++) {
        end = follow(h, t, answer, err);
        if (end == HTTP_AGAIN && r->once && t->acted)
            rc = ckpt_fail_as(err, CKPT_ESTOPPED, "unanswered", "%.900s", err->text);
        else
            rc = end == HTTP_AGAIN ? try_again(h, t, answer, tries, began, err)
                 : end == HTTP_DONE ? 0 : ckpt_err_code(err);
    }
    if (rc == 0 && r->final)
        memcpy(r->final, t->url, HTTP_URL);
    ckpt_free(t);
    return rc;
}

int http_send(struct http *h, const struct http_request *r, struct http_answer *answer,
              struct ckpt_err *err)
{
    struct http_request with = *r;

    with.limit = ANSWER_BYTES;
    return http_get(h, &with, answer, err);
}

/* -- bodies in memory ------------------------------------------------------------------------- */

int http_text(struct http *h, char **out, size_t *len, const struct http_request *r,
              struct http_answer *answer, struct ckpt_err *err)
{
    struct http_request with = *r;
    struct ckpt_buf b;
    int rc;

    *out = NULL;
    ckpt_buf_init(&b, (size_t)r->limit + 1);
    with.begin = body_text_begin;
    with.put = body_text_put;
    with.ctx = &b;
    rc = http_get(h, &with, answer, err);
    if (rc == 0 && !ckpt_buf_str(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc) {
        ckpt_buf_release(&b);
        return rc;
    }
    *out = (char *)b.data;
    *len = b.len;
    return 0;
}

int http_json(struct http *h, json_t **out, const struct http_request *r,
              struct http_answer *answer, struct ckpt_err *err)
{
    char *text = NULL;
    size_t len, at;
    int rc;

    *out = NULL;
    if ((rc = http_text(h, &text, &len, r, answer, err)) != 0)
        return rc;
    at = strspn(text, " \t\r\n");
    if (text[at] == '<')
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "answered with a page instead of JSON");
    else if (ckpt_json_parse(out, text, len, CKPT_JSON_STRICT, err))
        rc = err->code = CKPT_EPROTOCOL;        /* damaged in transit: not the file's fault */
    ckpt_free(text);
    return rc ? ckpt_err_in(err, "%s", r->name ? r->name : "the server") : 0;
}
