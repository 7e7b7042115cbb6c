/*
 * http - one request and its response: the only door to the network.
 *
 * A request that changes something (method is set) follows redirects 307 and 308 within its origin
 * alone.  Its body is read again from its first byte on each try.
 *
 * Rules for all requests: TLS 1.2 or newer with the peer's name verified; at most 5 redirects,
 * followed one by one, never from https to http, and never from a public host to a private
 * address; tokens and signatures are sent only to the host and port they belong to.  A header has
 * at most 64 KiB and 100 lines, a body at most the caller's limit.  A try is given up after 30
 * seconds without a connection, or after 20 (HF_HUB_DOWNLOAD_TIMEOUT) at less than 1 KiB a
 * second.  Connection faults, 408, 425, 429, 500, 502, 503 and 504 are tried again,
 * CKPT_HTTP_RETRIES (5) times and for 15 minutes at most, after a wait that doubles, or as
 * Retry-After says; each wait is logged.  Proxies are found as libcurl finds them (HTTPS_PROXY,
 * NO_PROXY), authorities by SSL_CERT_FILE or CURL_CA_BUNDLE.
 *
 * Codes: CKPT_ENOTFOUND 404 and 410; CKPT_EREFUSED 401, 403, 451, an invalid certificate, a
 * forbidden redirect; CKPT_EFORMAT "changed" 412 of what is read, CKPT_ESTOPPED "moved" 412 of a
 * request that changes something; CKPT_ESTOPPED tries used up or a signal; CKPT_EDEVICE no
 * connection at all, or offline; CKPT_EPROTOCOL anything else.
 */
#ifndef CKPT_LIBCKPT_REMOTE_HTTP_H
#define CKPT_LIBCKPT_REMOTE_HTTP_H

#include <jansson.h>

#include "libckpt/fail.h"
#include "libckpt/file.h"
#include "libckpt/remote/field.h"

#define HTTP_URL 8192           /* bytes of an address, with terminator */

/* Idle connections and the settings of all requests: one per process, any thread. */
struct http;

/* What a request sends: n bytes of memory, or of a file. */
struct http_body {
    const char             *type;       /* Content-Type, or NULL */
    const void             *bytes;      /* n bytes; or NULL, and */
    const struct ckpt_file *file;       /* bytes [at, at + n) of this */
    uint64_t                at, n;
    const char             *sha256;     /* of the n bytes in hex, for a signature; or NULL */
    bool                    ask;        /* wait for leave (100-continue) before a long body */
    /* Called before the first byte of each try, and with all bytes in their order. */
    int (*begin)(void *ctx, struct ckpt_err *err);
    int (*pass)(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);
    void                   *ctx;
};

/* The parts of a request that a signature covers. */
struct http_signed {
    const char             *method, *url;
    const char             *range;      /* "bytes=a-b", or NULL */
    const char             *headers;    /* more lines of the request, or NULL */
    const char             *sha256;     /* of the body in hex; NULL: not known */
    bool                    has_body;
};

/*
 * How a request authenticates itself: header lines, each ended by '\n', for requests to
 * origin ("https://host:port").
 */
struct http_auth {
    char  origin[512];
    /* Fill lines. */
    int (*sign)(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err);
    void *ctx;                  /* borrowed */
    const char *secret;         /* masked in all messages, including the server's; or NULL */
};

struct http_request {
    const char             *url;
    const char             *name;       /* for messages; NULL: the address up to its '?' */
    const struct http_auth *auth;       /* or NULL */
    bool                    head;       /* HEAD: the answer has no body */
    const char             *method;     /* of a request that changes something; NULL: GET, HEAD */
    const struct http_body *body;       /* or NULL */
    const char             *headers;    /* more lines, each ended by '\n'; or NULL */
    /* Not to be repeated where the server may have acted on it: then CKPT_ESTOPPED "unanswered". */
    bool                    once;
    bool                    ranged;     /* request bytes [at, at + n) only */
    uint64_t                at, n;
    uint64_t                limit;      /* most bytes of the body */
    /* Called when a 2xx response has arrived, before its body; again on each try, which starts
     * from the first byte. */
    int (*begin)(void *ctx, const struct http_answer *a, struct ckpt_err *err);
    int (*put)(void *ctx, const void *bytes, size_t n, struct ckpt_err *err);
    void                   *ctx;
    char                   *final;      /* buffer of HTTP_URL bytes for the address that
                                           answered; or NULL */
};

/* The instance of the process, made at the first call; NULL when out of memory. */
struct http *http_shared(struct ckpt_err *err);
/* The file of certificates to trust, where the environment names one; else NULL. */
const char *http_authorities(const struct http *h);
/* Tries of a request that fails for a while, and the seconds that a silent server is waited for:
 * for what is repeated above a request. */
long http_tries(const struct http *h);
long http_patience(const struct http *h);
/* The CKPT_E code of a status that is no success; CKPT_ESTOPPED: it may pass. */
int http_status_code(long status);
/* The same waits and limits for requests that another library sends: err has the failure of the
 * tries-th of them, the first began at *began (0 at first).  0, err cleared: it is time for another
 * one; else err says that it was the last. */
int http_again(struct http *h, long tries, uint64_t *began, struct ckpt_err *err);
/* From now on all requests together send at most this many bytes a second.  0: no limit. */
void http_limit_rate(uint64_t bytes_per_second);
/* From now on fn is told of each repetition in place of a log line: why, which try of how many
 * comes next, and after how long.  Any thread; NULL: a line. */
typedef void http_retry_fn(void *ctx, const char *why, long next, long most, uint64_t wait_ms);
void http_on_retry(http_retry_fn *fn, void *ctx);
/* From now on every request ends with CKPT_ESTOPPED once *stop is true.  NULL: none does. */
void http_stop_on(const volatile int *stop);
/* CKPT_ESTOPPED when that flag is set. */
int http_stopped(struct ckpt_err *err);

/*
 * Fails for every answer but 2xx.  answer is of the last try; X-Linked-*, X-Repo-Commit are kept
 * over redirects.
 */
int http_get(struct http *h, const struct http_request *r, struct http_answer *answer,
             struct ckpt_err *err);
/* The same, for a response whose body does not matter. */
int http_send(struct http *h, const struct http_request *r, struct http_answer *answer,
              struct ckpt_err *err);
/* The JSON document at r->url, of at most r->limit bytes.  begin, put and ctx are not used. */
int http_json(struct http *h, json_t **out, const struct http_request *r,
              struct http_answer *answer, struct ckpt_err *err);
/* The body as text in memory: ckpt_free it. */
int http_text(struct http *h, char **out, size_t *len, const struct http_request *r,
              struct http_answer *answer, struct ckpt_err *err);

/* "scheme://host:port" of an address, lower case.  CKPT_EUSAGE when it is not an address, or
 * contains a user. */
int http_origin(char out[512], const char *url, struct ckpt_err *err);
/* Whether an address names this host: localhost, 127.*, [::1]. */
bool http_is_loopback(const char *url);
/* Resolve rel relative to base. */
int http_join(char out[HTTP_URL], const char *base, const char *rel, struct ckpt_err *err);
/* text with all but unreserved bytes (and those of keep) as %XX; false when it does not fit. */
bool http_escape(char *out, size_t size, const char *text, const char *keep);
/* Decode %XX to bytes, in place; false when they are no text, or the digits are not two. */
bool http_unescape(char *text);
/* True when no request may be made: CKPT_OFFLINE, HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE. */
bool http_offline(void);
/* Whether the variable is set to 1, on, yes or true, in any case. */
bool http_env_true(const char *name);

#endif
