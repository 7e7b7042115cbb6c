/* sigv4 - see sigv4.h. */
#include "libckpt/remote/s3/sigv4.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/buf.h"
#include "libckpt/digest.h"
#include "libckpt/mem.h"

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define MAX_PARAMS 32
#define MAX_FIELDS 16

static bool sha256_hex(char hex[CKPT_SHA256_HEX], const void *bytes, size_t n)
{
    unsigned char d[CKPT_SHA256_BYTES];

    if (EVP_Digest(bytes, n, d, NULL, EVP_sha256(), NULL) != 1)
        return false;
    ckpt_digest_hex(hex, d, sizeof d);
    return true;
}

/* out = HMAC(key, text); both have 32 bytes, except the first key. */
static bool mac(unsigned char out[CKPT_SHA256_BYTES], const void *key, size_t n, const char *text)
{
    unsigned len = CKPT_SHA256_BYTES;

    return HMAC(EVP_sha256(), key, (int)n, (const unsigned char *)text, strlen(text), out,
                &len) != NULL;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Append the query, sorted, with "=" after every name. */
static bool put_query(struct ckpt_buf *b, const char *query)
{
    char copy[6144], *param[MAX_PARAMS];
    size_t n = 0;

    if ((size_t)snprintf(copy, sizeof copy, "%s", query) >= sizeof copy)
        return false;
    for (char *p = copy, *next; p && *p; p = next) {
        if (n == MAX_PARAMS)
            return false;
        next = strchr(p, '&');
        if (next)
            *next++ = '\0';
        param[n++] = p;
    }
    if (n > 0)
        qsort(param, n, sizeof *param, by_text);
    for (size_t i = 0; i < n; i++)
        ckpt_buf_printf(b, "%s%s%s", i ? "&" : "", param[i], strchr(param[i], '=') ? "" : "=");
    return true;
}

/* The host as libcurl sends it: without the scheme's default port. */
static bool host_of(char *out, size_t size, const char *url, const char **path)
{
    const char *at = strstr(url, "://"), *port;
    bool https = strncmp(url, "https", 5) == 0;
    size_t n;

    if (!at)
        return false;
    at += 3;
    n = strcspn(at, "/?#");
    *path = at + n;
    port = https ? ":443" : ":80";
    if (n > strlen(port) && memcmp(at + n - strlen(port), port, strlen(port)) == 0)
        n -= strlen(port);
    return (size_t)snprintf(out, size, "%.*s", (int)n, at) < size;
}

/* A field of a header as it is signed: the name in lower case, the value without blanks around. */
struct signed_field {
    char name[64], value[4200];
};

struct signed_fields {
    struct signed_field *f;
    size_t               n;
    bool                 full;
};

static void add_field(struct signed_fields *l, const char *name, size_t n_name, const char *value,
                      size_t n)
{
    struct signed_field *f = &l->f[l->n < MAX_FIELDS ? l->n : 0];

    while (n > 0 && strchr(" \t", *value)) {
        value++;
        n--;
    }
    while (n > 0 && strchr(" \t", value[n - 1]))
        n--;
    l->full = l->full || l->n == MAX_FIELDS || n_name >= sizeof f->name || n >= sizeof f->value;
    if (l->full)
        return;
    snprintf(f->name, sizeof f->name, "%.*s", (int)n_name, name);
    snprintf(f->value, sizeof f->value, "%.*s", (int)n, value);
    for (char *p = f->name; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    l->n++;
}

static void add_line(struct signed_fields *l, const char *name, const char *value)
{
    add_field(l, name, strlen(name), value, strlen(value));
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct signed_field *)a)->name, ((const struct signed_field *)b)->name);
}

/* All fields that are signed, by their names. */
static bool collect_fields(struct signed_fields *l, const struct sigv4_key *key,
                           const struct http_signed *what, const char *host, const char *payload,
                           const char *date)
{
    add_line(l, "host", host);
    if (what->range)
        add_line(l, "range", what->range);
    add_line(l, "x-amz-content-sha256", payload);
    add_line(l, "x-amz-date", date);
    if (key->session[0])
        add_line(l, "x-amz-security-token", key->session);
    for (const char *at = what->headers, *end; at && (end = strchr(at, '\n')); at = end + 1) {
        const char *colon = memchr(at, ':', (size_t)(end - at));

        if (!colon)
            return false;
        add_field(l, at, (size_t)(colon - at), colon + 1, (size_t)(end - colon) - 1);
    }
    qsort(l->f, l->n, sizeof *l->f, by_name);
    return !l->full;
}

/* Append the canonical request, and collect the names of its header fields. */
static bool put_request(struct ckpt_buf *b, struct ckpt_buf *names, const struct sigv4_key *key,
                        const struct http_signed *what, const char *payload, const char *date)
{
    struct signed_fields l = {.f = ckpt_alloc(MAX_FIELDS, sizeof *l.f)};
    const char *path, *query;
    char host[512];
    bool done = l.f && host_of(host, sizeof host, what->url, &path) &&
                collect_fields(&l, key, what, host, payload, date);

    if (done) {
        query = strchr(path, '?');
        ckpt_buf_printf(b, "%s\n%s%.*s\n", what->method, *path == '/' ? "" : "/",
                        (int)(query ? query - path : (ptrdiff_t)strcspn(path, "#")), path);
        done = put_query(b, query ? query + 1 : "");
    }
    ckpt_buf_put_str(b, "\n");
    for (size_t i = 0; done && i < l.n; i++) {
        ckpt_buf_printf(b, "%s:%s\n", l.f[i].name, l.f[i].value);
        ckpt_buf_printf(names, "%s%s", i ? ";" : "", l.f[i].name);
    }
    if (l.f)
        explicit_bzero(l.f, MAX_FIELDS * sizeof *l.f);
    ckpt_free(l.f);
    if (done && ckpt_buf_str(names))
        ckpt_buf_printf(b, "\n%s\n%s", (char *)names->data, payload);
    return done && ckpt_buf_ok(names) && ckpt_buf_ok(b);
}

static bool signature(char hex[CKPT_SHA256_HEX], const struct sigv4_key *key, const char *day,
                      const char *text)
{
    unsigned char k[CKPT_SHA256_BYTES], first[300];
    int n = snprintf((char *)first, sizeof first, "AWS4%s", key->secret);
    bool done = mac(k, first, (size_t)n, day) && mac(k, k, sizeof k, key->region) &&
                mac(k, k, sizeof k, "s3") && mac(k, k, sizeof k, "aws4_request") &&
                mac(k, k, sizeof k, text);

    explicit_bzero(first, sizeof first);
    ckpt_digest_hex(hex, k, sizeof k);
    explicit_bzero(k, sizeof k);
    return done;
}

int sigv4_sign(char *lines, size_t size, const struct sigv4_key *key,
               const struct http_signed *what, time_t now, struct ckpt_err *err)
{
    const char *payload = what->sha256 ? what->sha256 : what->has_body ? "UNSIGNED-PAYLOAD" : EMPTY;
    char date[32], day[16], scope[160], digest[CKPT_SHA256_HEX], text[400];
    char hex[CKPT_SHA256_HEX];
    struct ckpt_buf b, names;
    struct tm tm;
    size_t n = size;
    bool done;

    gmtime_r(&now, &tm);
    strftime(date, sizeof date, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(day, sizeof day, "%.8s", date);
    snprintf(scope, sizeof scope, "%s/%s/s3/aws4_request", day, key->region);
    ckpt_buf_init(&b, 32768);
    ckpt_buf_init(&names, 2048);
    done = put_request(&b, &names, key, what, payload, date) && sha256_hex(digest, b.data, b.len);
    ckpt_buf_release(&b);
    if (done) {
        snprintf(text, sizeof text, "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, digest);
        done = signature(hex, key, day, text);
    }
    if (done)
        n = (size_t)snprintf(lines, size, "x-amz-content-sha256: %s\nx-amz-date: %s\n%s%s%s"
                             "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, "
                             "Signature=%s\n", payload, date,
                             key->session[0] ? "x-amz-security-token: " : "", key->session,
                             key->session[0] ? "\n" : "", key->id, scope, (char *)names.data, hex);
    ckpt_buf_release(&names);
    return n < size ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.*s: a request too long to be signed",
                                    (int)strcspn(what->url, "?"), what->url);
}
