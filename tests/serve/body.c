/* body.c - what a client sends behind the head of a request: to nothing, to memory, to a file. */
#include "tests/serve/serve.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#define PIECE ((size_t)1 << 18) /* stays in the cache: read, hashed and written */
#define MOST_TEXT ((size_t)1 << 29)

/* What takes the bytes of a body; false: no more of them. */
struct sink {
    bool (*take)(struct sink *s, const void *bytes, size_t n);
    struct request *r;
    int             fd;
    off_t           at;
    EVP_MD_CTX     *sha;
    XXH3_state_t   *xxh;
};

bool conn_fill(struct conn *c)
{
    ssize_t k;

    if (c->at == c->have)
        c->at = c->have = 0;
    else if (c->at > 0) {
        memmove(c->buf, c->buf + c->at, c->have - c->at);
        c->have -= c->at;
        c->at = 0;
    }
    k = c->have < c->size ? recv(c->fd, c->buf + c->have, c->size - c->have, 0) : 0;
    c->have += k > 0 ? (size_t)k : 0;
    return k > 0;
}

/* At most n bytes, from what was read ahead or straight from the socket. */
static ssize_t some(struct conn *c, void *dst, size_t n)
{
    size_t have = c->have - c->at;

    if (have == 0)
        return recv(c->fd, dst, n, 0);
    n = n < have ? n : have;
    memcpy(dst, c->buf + c->at, n);
    c->at += n;
    return (ssize_t)n;
}

static bool receive_bytes(struct sink *s, long long n)
{
    struct request *r = s->r;
    long long limit = is(r, "reset") ? atoll(r->value) : -1;
    char *piece = malloc(PIECE);
    bool ok = true;

    while (ok && n > 0 && (limit < 0 || r->received < limit)) {
        size_t want = n < (long long)PIECE ? (size_t)n : PIECE;
        ssize_t k;

        if (limit >= 0 && (long long)want > limit - r->received)
            want = (size_t)(limit - r->received);
        k = some(r->conn, piece, want);
        ok = k > 0 && s->take(s, piece, (size_t)k);
        if (k > 0) {
            r->received += k;
            n -= k;
        }
    }
    free(piece);
    return ok && n == 0;
}

/* The length of the next chunk, or -1. */
static long long chunk_length(struct conn *c)
{
    char *end;
    long long n;

    while ((end = memmem(c->buf + c->at, c->have - c->at, "\r\n", 2)) == NULL)
        if (!conn_fill(c))
            return -1;
    n = c->buf[c->at] == '\r' ? 0 : strtoll(c->buf + c->at, NULL, 16);     /* it skips line ends */
    c->at = (size_t)(end - c->buf) + 2;
    return n;
}

static bool receive_chunks(struct sink *s)
{
    struct conn *c = s->r->conn;
    long long n;

    while ((n = chunk_length(c)) > 0)
        if (!receive_bytes(s, n) || chunk_length(c) != 0)
            return false;
    return n == 0 && chunk_length(c) == 0;
}

static bool receive(struct sink *s)
{
    struct request *r = s->r;
    bool ok;

    if (r->length == 0)
        return true;
    if (r->expect)
        put(r->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    ok = r->length < 0 ? receive_chunks(s) : receive_bytes(s, r->length);
    r->close = r->close || !ok;
    return ok;
}

static bool take_nothing(struct sink *s, const void *bytes, size_t n)
{
    (void)s;
    (void)bytes;
    (void)n;
    return true;
}

static bool take_text(struct sink *s, const void *bytes, size_t n)
{
    struct request *r = s->r;

    if (r->n_body + n > MOST_TEXT)
        return false;
    if ((size_t)s->at < r->n_body + n + 1) {
        s->at = (off_t)(2 * (r->n_body + n) + 1);
        r->body = realloc(r->body, (size_t)s->at);
    }
    memcpy(r->body + r->n_body, bytes, n);
    r->n_body += n;
    r->body[r->n_body] = '\0';
    return true;
}

static bool is_zero(const char *bytes, size_t n) { return !*bytes && !memcmp(bytes, bytes + 1, n - 1); }

static bool take_file(struct sink *s, const void *bytes, size_t n)
{
    const char *from = bytes;

    if (s->sha)
        EVP_DigestUpdate(s->sha, bytes, n);
    XXH3_128bits_update(s->xxh, bytes, n);
    if (options.unproved > 1 && n > 1 && is_zero(bytes, n)) {
        from += n - 1;                  /* a hole, and the byte that ends it */
        s->at += (off_t)n - 1;
        n = 1;
    }
    while (n > 0) {
        ssize_t k = pwrite(s->fd, from, n, s->at);

        if (k <= 0)
            return false;
        from += k;
        s->at += k;
        n -= (size_t)k;
    }
    return true;
}

bool receive_nothing(struct request *r)
{
    return receive(&(struct sink){.take = take_nothing, .r = r});
}

bool receive_text(struct request *r)
{
    return receive(&(struct sink){.take = take_text, .r = r});
}

bool receive_file(struct request *r, const char *path, long long at, bool part)
{
    struct sink s = {.take = take_file, .r = r, .at = at, .sha = part ? NULL : EVP_MD_CTX_new(),
                     .xxh = XXH3_createState()};
    unsigned char d[32] = {0};
    XXH128_hash_t x;
    bool ok;

    make_folders(path);
    s.fd = open(path, O_WRONLY | O_CREAT, 0666);
    if (s.sha)
        EVP_DigestInit_ex(s.sha, EVP_sha256(), NULL);
    XXH3_128bits_reset(s.xxh);
    ok = s.fd >= 0 && receive(&s);
    if (s.sha)
        EVP_DigestFinal_ex(s.sha, d, NULL);
    x = XXH3_128bits_digest(s.xxh);
    for (int i = 0; i < 32; i++)
        snprintf(r->sha256 + 2 * i, 3, "%02x", d[i]);
    snprintf(r->etag, sizeof r->etag, "%016llx%016llx", (unsigned long long)x.high64,
             (unsigned long long)x.low64);
    EVP_MD_CTX_free(s.sha);
    XXH3_freeState(s.xxh);
    if (s.fd >= 0)
        close(s.fd);
    return ok;
}
