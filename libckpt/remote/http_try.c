/* http_try - see http_try.h, and http.h for the rules. */
#include "libckpt/remote/http_try.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "libckpt/base/buf.h"
#include "libckpt/ckpt.h"
#include "libckpt/base/json.h"
#include "libckpt/log.h"
#include "libckpt/base/secret.h"
#include "libckpt/base/xml.h"
#include "libckpt/remote/http_rate.h"

#define HEADER_BYTES   65536u
#define HEADER_LINES   100u
#define PROBLEM_BYTES  ((size_t)16 << 10)   /* most bytes stored of an error body */
#define PROBLEM_SHOWN  200
#define CONNECT_SECONDS 30L
#define UPLOAD_BYTES    (1L << 20)
#define LOW_BYTES       1024u               /* bytes in the time of a stall, at least */

/* State of libcurl's callbacks. */
struct exchange {
    struct http_try    *t;
    struct http_answer *a;
    struct ckpt_err    *err;
    size_t              header_bytes, header_lines;
    uint64_t            got;        /* bytes of the body */
    uint64_t            sent;       /* bytes of the request's body */
    bool                begun, in_header;
    bool                connected, stalled;
    bool                failed;     /* a callback filled err and ended the transfer */
    long                stall_seconds;
    time_t              moved;      /* when the last byte of header or body arrived */
    uint64_t            moved_at;   /* number of bytes received until then */
    struct ckpt_buf     problem;    /* the body of an error response */
};

static bool is_success(long status) { return status >= 200 && status < 300; }

static size_t on_header(char *line, size_t one, size_t n, void *ctx)
{
    struct exchange *x = ctx;

    (void)one;
    x->header_bytes += n;
    if (x->header_bytes > HEADER_BYTES || ++x->header_lines > HEADER_LINES) {
        x->failed = ckpt_fail(x->err, CKPT_EPROTOCOL, "%s: the header of the answer is longer than "
                              "%u bytes or %u lines", x->t->name, HEADER_BYTES, HEADER_LINES);
        return 0;
    }
    x->in_header = n > 2;
    field_line(x->a, line, n);
    return n;
}

static int begin(struct exchange *x)
{
    const struct http_request *r = x->t->request;

    x->begun = true;
    if (x->a->encoding[0] && strcmp(x->a->encoding, "identity") != 0)
        return ckpt_fail(x->err, CKPT_EPROTOCOL, "%s: answered in encoding %s, which was not asked "
                         "for", x->t->name, x->a->encoding);
    return r->begin ? r->begin(r->ctx, x->a, x->err) : 0;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const struct http_request *r = x->t->request;

    (void)one;
    if (!is_success(x->a->status)) {
        size_t room = PROBLEM_BYTES - (x->problem.len < PROBLEM_BYTES ? x->problem.len
                                                                     : PROBLEM_BYTES);

        ckpt_buf_put(&x->problem, bytes, n < room ? n : room);
        x->got += n;
        return x->got > 64 * PROBLEM_BYTES ? 0 : n;
    }
    if (!x->begun)
        x->failed = begin(x);
    x->got += n;
    if (!x->failed && x->got > r->limit)
        x->failed = ckpt_fail(x->err, CKPT_EPROTOCOL, "%s: sent more than the %llu bytes that were "
                              "wanted", x->t->name, (unsigned long long)r->limit);
    if (!x->failed && r->put)
        x->failed = r->put(r->ctx, bytes, n, x->err);
    return x->failed ? 0 : n;
}

static time_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static int begin_body(struct exchange *x)
{
    const struct http_body *b = x->t->request->body;

    x->sent = 0;
    return b->begin ? b->begin(b->ctx, x->err) : 0;
}

/* A file that became shorter while it was sent is no failure of the disk. */
static int read_body(const struct http_body *b, char *bytes, size_t n, uint64_t at,
                     struct ckpt_err *err)
{
    int rc = ckpt_file_read_at(b->file, bytes, n, b->at + at, err);

    if (rc == CKPT_EIO && strcmp(err->reason, "truncated") == 0)
        return ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was sent",
                            ckpt_file_name(b->file));
    return rc;
}

/* The next bytes of the request's body. */
static size_t on_send(char *bytes, size_t one, size_t n, void *ctx)
{
    struct exchange *x = ctx;
    const struct http_body *b = x->t->request->body;
    uint64_t left = b->n - x->sent;
    int rc = 0;

    n *= one;
    n = left < n ? (size_t)left : n;
    n = http_rate_take(n);
    if (x->sent == 0)
        rc = begin_body(x);
    if (rc == 0 && b->bytes)
        memcpy(bytes, (const char *)b->bytes + x->sent, n);
    else if (rc == 0 && n > 0)
        rc = read_body(b, bytes, n, x->sent, x->err);
    if (rc == 0 && b->pass)
        rc = b->pass(b->ctx, bytes, n, x->err);
    x->sent += n;
    x->failed = x->failed || rc;
    return rc ? CURL_READFUNC_ABORT : n;
}

/* libcurl sends the body again on another connection. */
static int on_rewind(void *ctx, curl_off_t at, int origin)
{
    struct exchange *x = ctx;

    if (at != 0 || origin != SEEK_SET)
        return CURL_SEEKFUNC_FAIL;
    x->sent = 0;
    return CURL_SEEKFUNC_OK;
}

/* libcurl's own speed limit counts bytes without content, such as chunk extensions: here only
 * bytes of header and body count. */
static int on_progress(void *ctx, curl_off_t dl, curl_off_t dn, curl_off_t ul, curl_off_t un)
{
    struct exchange *x = ctx;

    (void)dl;
    (void)dn;
    (void)ul;
    (void)un;
    if (x->t->stop && *x->t->stop)
        return 1;
    if (x->got + x->header_bytes + x->sent >= x->moved_at + LOW_BYTES) {
        x->moved_at = x->got + x->header_bytes + x->sent;
        x->moved = now();
    }
    x->stalled = x->connected && now() - x->moved > (time_t)x->stall_seconds;
    return x->stalled;
}

/* Addresses that only this host or its own network can reach. */
static bool is_private(const char *ip)
{
    struct in6_addr six;
    struct in_addr four;
    unsigned char b[4];

    if (inet_pton(AF_INET6, ip, &six) == 1) {
        if (!IN6_IS_ADDR_V4MAPPED(&six))
            return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_LINKLOCAL(&six) ||
                   IN6_IS_ADDR_UNSPECIFIED(&six) || (six.s6_addr[0] & 0xfe) == 0xfc;
        memcpy(b, six.s6_addr + 12, 4);
    } else if (inet_pton(AF_INET, ip, &four) == 1) {
        memcpy(b, &four, 4);
    } else {
        return false;
    }
    return b[0] == 0 || b[0] == 10 || b[0] == 127 || (b[0] == 172 && (b[1] & 0xf0) == 16) ||
           (b[0] == 192 && b[1] == 168) || (b[0] == 169 && b[1] == 254) ||
           (b[0] == 100 && (b[1] & 0xc0) == 64);
}

/* Called before the request is sent: a public host must not redirect us to a private address. */
static int on_connected(void *ctx, char *ip, char *own, int port, int own_port)
{
    struct exchange *x = ctx;

    (void)own;
    (void)port;
    (void)own_port;
    x->connected = true;
    x->t->acted = true;
    x->moved = now();
    if (x->t->hop == 0)
        x->t->is_private = is_private(ip);
    if (x->t->hop == 0 || x->t->is_private || !is_private(ip))
        return CURL_PREREQFUNC_OK;
    x->failed = ckpt_fail(x->err, CKPT_EREFUSED, "%s: redirected to a private address, %s",
                          x->t->name, ip);
    return CURL_PREREQFUNC_ABORT;
}

/* -- setting a handle up ---------------------------------------------------------------------- */

static int add_line(struct curl_slist **list, const struct curl_calls *c, const char *line,
                    struct ckpt_err *err)
{
    struct curl_slist *more = c->slist_append(*list, line);

    if (!more)
        return ckpt_nomem(err, strlen(line));
    *list = more;
    return 0;
}

static int add_lines(struct curl_slist **list, const struct curl_calls *c, const char *lines,
                     struct ckpt_err *err)
{
    char line[4096];
    int rc = 0;

    for (const char *end; rc == 0 && (end = strchr(lines, '\n')) != NULL; lines = end + 1) {
        if ((size_t)(end - lines) >= sizeof line)
            return ckpt_fail(err, CKPT_ELIMIT, "a header line of %zu bytes", (size_t)(end - lines));
        snprintf(line, sizeof line, "%.*s", (int)(end - lines), lines);
        rc = add_line(list, c, line, err);
    }
    explicit_bzero(line, sizeof line);
    return rc;
}

static const char *method_of(const struct http_request *r)
{
    return r->method ? r->method : r->head ? "HEAD" : "GET";
}

/* Add authentication if it is for exactly this origin. */
static int add_auth(struct curl_slist **list, const struct curl_calls *c, const struct http_try *t,
                    const char *range, struct ckpt_err *err)
{
    const struct http_auth *auth = t->request->auth;
    char lines[4096] = "", origin[512];
    int rc = 0;

    if (!auth)
        return 0;
    if ((rc = http_origin(origin, t->url, err)) != 0)
        return rc;
    if (strcmp(origin, auth->origin) != 0)
        return 0;
    rc = auth->sign(auth->ctx, &(struct http_signed){
        .method = method_of(t->request), .url = t->url, .range = range,
        .headers = t->request->headers,
        .sha256 = t->request->body ? t->request->body->sha256 : NULL,
        .has_body = t->request->body != NULL}, lines, sizeof lines, err);
    if (rc == 0)
        rc = add_lines(list, c, lines, err);
    explicit_bzero(lines, sizeof lines);
    return rc;
}

/* Without "Expect:" libcurl would wait for leave before each larger body. */
static int add_body_lines(struct curl_slist **list, const struct curl_calls *c,
                          const struct http_body *b, struct ckpt_err *err)
{
    char line[300];
    int rc = b->ask ? 0 : add_line(list, c, "Expect:", err);

    snprintf(line, sizeof line, "Content-Type: %.250s", b->type ? b->type : "");
    return rc || !b->type ? rc : add_line(list, c, line, err);
}

static void set_up(struct exchange *x, const struct curl_calls *c, CURL *e,
                   const struct http_setting *set, struct curl_slist *list, char *why)
{
    const struct http_request *r = x->t->request;

    c->easy_reset(e);                   /* keeps the connections */
    c->easy_setopt(e, CURLOPT_URL, x->t->url);
    c->easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    c->easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    c->easy_setopt(e, CURLOPT_NOBODY, r->head ? 1L : 0L);
    c->easy_setopt(e, CURLOPT_HTTPHEADER, list);
    c->easy_setopt(e, CURLOPT_USERAGENT, "ckpt/" CKPT_VERSION);
    c->easy_setopt(e, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (set->authorities)
        c->easy_setopt(e, CURLOPT_CAINFO, set->authorities);
    c->easy_setopt(e, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS);
    c->easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)LOW_BYTES);
    c->easy_setopt(e, CURLOPT_LOW_SPEED_TIME, set->stall_seconds);
    c->easy_setopt(e, CURLOPT_BUFFERSIZE, 262144L);
    c->easy_setopt(e, CURLOPT_TCP_KEEPALIVE, 1L);
    c->easy_setopt(e, CURLOPT_ERRORBUFFER, why);
    c->easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(e, CURLOPT_HEADERDATA, x);
    c->easy_setopt(e, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(e, CURLOPT_WRITEDATA, x);
    c->easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    c->easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    c->easy_setopt(e, CURLOPT_XFERINFODATA, x);
    c->easy_setopt(e, CURLOPT_PREREQFUNCTION, on_connected);
    c->easy_setopt(e, CURLOPT_PREREQDATA, x);
    if (r->method)
        c->easy_setopt(e, CURLOPT_CUSTOMREQUEST, r->method);
    if (r->once)                        /* libcurl repeats what an idle connection lost */
        c->easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
    if (!r->body)
        return;
    c->easy_setopt(e, CURLOPT_UPLOAD, 1L);
    c->easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)r->body->n);
    c->easy_setopt(e, CURLOPT_UPLOAD_BUFFERSIZE, UPLOAD_BYTES);
    c->easy_setopt(e, CURLOPT_READFUNCTION, on_send);
    c->easy_setopt(e, CURLOPT_READDATA, x);
    c->easy_setopt(e, CURLOPT_SEEKFUNCTION, on_rewind);
    c->easy_setopt(e, CURLOPT_SEEKDATA, x);
}

/* -- what came of it -------------------------------------------------------------------------- */

static bool is_transient(long status)
{
    return status == 408 || status == 425 || status == 429 || status == 500 || status == 502 ||
           status == 503 || status == 504;
}

/* The first of a registry's {"errors": [{"code", "message"}]}; a gets the code. */
static const json_t *first_error(struct http_answer *a, const json_t *json)
{
    const json_t *e = json_array_get(json_object_get(json, "errors"), 0);
    const char *code = json_string_value(json_object_get(e, "code"));

    if (code && !a->problem_code[0] && strlen(code) < sizeof a->problem_code)
        snprintf(a->problem_code, sizeof a->problem_code, "%s", code);
    return json_object_get(e, "message");
}

/* Take <Code> and <Message> of an <Error>, as S3 sends it, for a header's. */
static void read_xml(struct exchange *x)
{
    struct xml body = xml_of((char *)x->problem.data), error;

    if (!xml_next(&error, &body, "Error"))
        return;
    xml_text(x->a->problem_code, sizeof x->a->problem_code, error, "Code");
    xml_text(x->a->problem, sizeof x->a->problem, error, "Message");
}

/* The server's explanation: from the header, or from its JSON or XML. */
static const char *problem_of(struct exchange *x, json_t **json)
{
    struct ckpt_err ignored = {0};
    const json_t *e;

    *json = NULL;
    if (ckpt_secret_in(x->a->problem, strlen(x->a->problem)) ||
        ckpt_secret_in((char *)x->problem.data, x->problem.len))
        return "";
    if (!x->a->problem[0] && x->problem.len > 0 && ckpt_buf_str(&x->problem))
        read_xml(x);
    if (x->a->problem[0])
        return x->a->problem;
    if (x->problem.len == 0 || !ckpt_buf_str(&x->problem) ||
        ckpt_json_parse(json, (char *)x->problem.data, x->problem.len, 0, &ignored))
        return "";
    e = json_object_get(*json, "error");
    if (json_is_array(e))
        e = json_array_get(e, 0);
    if (!e)
        e = first_error(x->a, *json);
    return json_is_string(e) && !ckpt_secret_in(json_string_value(e), json_string_length(e))
               ? json_string_value(e) : "";
}

int http_status_code(long status)
{
    switch (status) {
    case 404: case 410:
        return CKPT_ENOTFOUND;
    case 401: case 403: case 407: case 451:
        return CKPT_EREFUSED;
    case 412:
        return CKPT_EFORMAT;
    default:
        return is_transient(status) ? CKPT_ESTOPPED : CKPT_EPROTOCOL;
    }
}

static enum http_end refused_by_server(struct exchange *x)
{
    long status = x->a->status;
    json_t *json;
    const char *why = problem_of(x, &json);

    if (status == 412 && x->t->request->method)
        ckpt_fail_as(x->err, CKPT_ESTOPPED, "moved", "%s: is no longer what it was%s%.*s",
                     x->t->name, *why ? ": " : "", PROBLEM_SHOWN, why);
    else if (status == 412)
        ckpt_fail_as(x->err, CKPT_EFORMAT, "changed", "%s: changed while it was read", x->t->name);
    else
        ckpt_fail(x->err, http_status_code(status), "%s: status %ld%s%.*s", x->t->name, status,
                  *why ? ": " : "", PROBLEM_SHOWN, why);
    json_decref(json);
    if (status == 413)
        ckpt_err_hint(x->err, "a limit of the server, or of a proxy before it, on the length of "
                      "one request");
    if (status == 401 || status == 403)
        ckpt_err_hint(x->err, x->t->request->auth ? "the token or key does not allow it"
                                                  : "the request has no token or key: see "
                                                    "ckpt-remote(7)");
    return is_transient(status) ? HTTP_AGAIN : HTTP_FAILED;
}

/* Report an error of libcurl. */
static enum http_end broken(struct exchange *x, CURLcode code, const char *why)
{
    switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
        if (!x->failed && x->stalled) {
            ckpt_fail(x->err, CKPT_ESTOPPED, "%s: nothing came in %ld seconds", x->t->name,
                      x->stall_seconds);
            return HTTP_AGAIN;
        }
        if (!x->failed)
            ckpt_fail(x->err, CKPT_ESTOPPED, "%s: stopped by a signal", x->t->name);
        return HTTP_FAILED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT:
        x->t->unreachable = true;
        ckpt_fail(x->err, CKPT_EDEVICE, "%s: %s", x->t->name, why);
        return HTTP_AGAIN;
    case CURLE_OPERATION_TIMEDOUT: case CURLE_RECV_ERROR: case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING: case CURLE_PARTIAL_FILE: case CURLE_HTTP2: case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
        ckpt_fail(x->err, CKPT_ESTOPPED, "%s: %s", x->t->name, why);
        return HTTP_AGAIN;
    case CURLE_PEER_FAILED_VERIFICATION:
        ckpt_fail_as(x->err, CKPT_EREFUSED, "certificate", "%s: %s", x->t->name, why);
        return HTTP_FAILED;
    case CURLE_SSL_CACERT_BADFILE:
        ckpt_fail(x->err, CKPT_ECONFIG, "%s: %s", x->t->name, why);
        return HTTP_FAILED;
    case CURLE_OUT_OF_MEMORY:
        if (!x->in_header)
            ckpt_nomem(x->err, 0);
        else if (!x->failed)         /* libcurl's error for a header line of more than 100 KiB */
            ckpt_fail(x->err, CKPT_EPROTOCOL, "%s: the header of the answer has a line that does "
                      "not end", x->t->name);
        return HTTP_FAILED;
    default:
        if (!x->failed)
            ckpt_fail(x->err, CKPT_EPROTOCOL, "%s: %s", x->t->name, why);
        return HTTP_FAILED;
    }
}

static enum http_end judge(struct exchange *x, const struct curl_calls *c, CURL *e, CURLcode code,
                           const char *why)
{
    char *to = NULL;

    if (code != CURLE_OK)
        return broken(x, code, *why ? why : c->easy_strerror(code));
    if (is_success(x->a->status))
        return x->begun || begin(x) == 0 ? HTTP_DONE : HTTP_FAILED;
    if (x->a->status >= 300 && x->a->status < 400 && x->a->status != 304 &&
        (!x->t->request->method || x->a->status == 307 || x->a->status == 308) &&
        c->easy_getinfo(e, CURLINFO_REDIRECT_URL, &to) == CURLE_OK && to) {
        if ((size_t)snprintf(x->t->to, sizeof x->t->to, "%s", to) < sizeof x->t->to)
            return HTTP_REDIRECTED;
        ckpt_fail(x->err, CKPT_ELIMIT, "%s: redirected to an address of %zu bytes", x->t->name,
                  strlen(to));
        return HTTP_FAILED;
    }
    return refused_by_server(x);
}

enum http_end http_try(struct http_try *t, const struct curl_calls *c, CURL *e,
                       const struct http_setting *set, struct http_answer *a,
                       struct ckpt_err *err)
{
    struct exchange x = {.t = t, .a = a, .err = err, .in_header = true,
                         .stall_seconds = set->stall_seconds};
    const struct http_request *r = t->request;
    char range[64], line[80], why[CURL_ERROR_SIZE] = "";
    struct curl_slist *list = NULL;
    enum http_end end = HTTP_FAILED;
    int rc;

    field_clear(a);
    ckpt_buf_init(&x.problem, PROBLEM_BYTES + 1);
    snprintf(range, sizeof range, "bytes=%llu-%llu", (unsigned long long)r->at,
             (unsigned long long)(r->at + r->n - 1));
    snprintf(line, sizeof line, "Range: %s", range);
    rc = add_line(&list, c, "Accept-Encoding: identity", err);
    if (rc == 0 && r->ranged)
        rc = add_line(&list, c, line, err);
    if (rc == 0)
        rc = add_auth(&list, c, t, r->ranged ? range : NULL, err);
    if (rc == 0 && r->body)
        rc = add_body_lines(&list, c, r->body, err);
    if (rc == 0 && r->headers)
        rc = add_lines(&list, c, r->headers, err);
    if (rc == 0) {
        t->unreachable = t->acted = false;
        set_up(&x, c, e, set, list, why);
        end = judge(&x, c, e, c->easy_perform(e), why);
        if (a->status)
            t->acted = is_success(a->status) || (a->status >= 500 && a->status != 503);
        ckpt_log(CKPT_LOG_DEBUG, "%s %.*s%s%s: status %ld, %llu bytes", method_of(r),
                 (int)strcspn(t->url, "?#"), t->url, r->ranged ? " " : "", r->ranged ? range : "",
                 a->status, (unsigned long long)x.got);
        c->easy_reset(e);               /* drop the handle's pointers to our locals */
    }
    c->slist_free_all(list);
    ckpt_buf_release(&x.problem);
    return end;
}
