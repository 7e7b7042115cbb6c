/* answer.c - one answer to a request, as the rules bend it, and its line of the log. */
#include "tests/serve/serve.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static FILE *log_file;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long serial;

bool log_open(const char *path)
{
    log_file = fopen(path, "a");
    return log_file != NULL;
}

void say(const struct request *r, int status, long long bytes)
{
    char more[100] = "";

    if (r->length)
        snprintf(more, sizeof more, " in=%lld", r->received);
    pthread_mutex_lock(&lock);
    fprintf(log_file, "%s %s %s %s %s %d %lld%s%s%s\n", r->port == port_of[0] ? "hub" : "cdn",
            r->method, r->target, *r->range ? r->range : "-", *r->token ? r->token : "-", status,
            bytes, more, r->note ? " " : "", r->note ? r->note : "");
    fflush(log_file);
    pthread_mutex_unlock(&lock);
}

bool put(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t k = send(fd, at, n, MSG_NOSIGNAL);

        if (k <= 0)
            return false;
        at += k;
        n -= (size_t)k;
    }
    return true;
}

bool is(const struct request *r, const char *action)
{
    return r->act && strcmp(r->act, action) == 0;
}

static const char *reason(int status)
{
    return status == 200 ? "OK" : status == 206 ? "Partial Content" : status == 302 ? "Found"
           : status == 404 ? "Not Found" : "Status";
}

/* The connection is torn down, as by a host that goes away. */
void hang_up(struct request *r)
{
    struct linger at_once = {1, 0};

    setsockopt(r->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    r->close = true;
}

/* So many bytes of an answer as the rule `drop` says; then the connection closes. */
static void put_first(struct request *r, const char *head, size_t k, const char *body, size_t n)
{
    size_t left = (size_t)atol(r->value);

    put(r->fd, head, k < left ? k : left);
    left -= k < left ? k : left;
    put(r->fd, body, n < left ? n : left);
    r->close = true;
}

/* An answer of bytes in memory, ranges and rules applied. */
void answer(struct request *r, int status, const char *headers, const char *body, size_t n)
{
    unsigned long long from = 0, last = n ? n - 1 : 0;
    char head[SERVE_PATH * 2], extra[200] = "";
    size_t send_n = n, k;
    bool ranged = false;
    char tail;

    r->status = status;
    if (r->mute)
        return;
    if (is(r, "lost")) {
        r->note = "lost";
        say(r, status, 0);
        hang_up(r);
        return;
    }
    if (is(r, "page")) {
        status = 200;
        headers = "Content-Type: text/html\r\n";
        body = "<!doctype html><html></html>";
        send_n = n = 28;
    }
    if (status == 200 && *r->range && !is(r, "plain") && !is(r, "chunk") &&
        sscanf(r->range, "bytes=%llu-%llu", &from, &last) >= 1) {
        if (last >= n)
            last = n ? n - 1 : 0;
        if (from >= n) {
            status = 416;
            send_n = 0;
            snprintf(extra, sizeof extra, "Content-Range: bytes */%zu\r\n", n);
        } else {
            status = 206;
            ranged = true;
            send_n = (size_t)(last - from + 1);
            snprintf(extra, sizeof extra, "Content-Range: bytes %llu-%llu/%zu\r\n", from, last,
                     n + (is(r, "total") ? 1 : 0));
        }
    }
    if (is(r, "cut"))
        send_n /= 2;
    k = (size_t)snprintf(head, sizeof head, "HTTP/1.1 %d %s\r\n%s%s", status, reason(status),
                         headers, extra);
    if (is(r, "etag"))
        k += (size_t)snprintf(head + k, sizeof head - k, "ETag: \"v%ld\"\r\n", ++serial);
    if (is(r, "gzip"))
        k += (size_t)snprintf(head + k, sizeof head - k, "Content-Encoding: gzip\r\n");
    if (is(r, "chunk"))
        k += (size_t)snprintf(head + k, sizeof head - k, "Connection: close\r\n\r\n");
    else
        k += (size_t)snprintf(head + k, sizeof head - k, "Content-Length: %zu\r\n\r\n",
                              send_n + (is(r, "length") ? (size_t)atol(r->value) : 0));
    say(r, status, (long long)send_n);
    if (is(r, "drop")) {
        put_first(r, head, k, strcmp(r->method, "HEAD") == 0 ? "" : body + (ranged ? from : 0),
                  strcmp(r->method, "HEAD") == 0 ? 0 : send_n);
        return;
    }
    put(r->fd, head, k);
    if (strcmp(r->method, "HEAD") == 0)
        return;
    body += ranged ? from : 0;
    if (is(r, "short")) {
        put(r->fd, body, send_n / 2);
        r->close = true;
    } else if (is(r, "slow")) {
        put(r->fd, body, 1);
        sleep(60);
        r->close = true;
    } else if (is(r, "flip") && send_n) {
        tail = (char)(body[send_n - 1] ^ 1);
        put(r->fd, body, send_n - 1);
        put(r->fd, &tail, 1);
    } else {
        put(r->fd, body, send_n);
    }
    r->close = r->close || is(r, "chunk") || is(r, "length");
}

void fail(struct request *r, int status, const char *code, const char *message)
{
    char headers[1024], body[1024];
    int n = snprintf(body, sizeof body, "{\"error\":\"%s\"}", message);

    snprintf(headers, sizeof headers, "Content-Type: application/json\r\n%s%s%s", *code ?
             "X-Error-Code: " : "", code, *code ? "\r\n" : "");
    answer(r, status, headers, body, (size_t)n);
}

