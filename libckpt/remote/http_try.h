/* http_try - shared by http.c and http_try.c: one exchange with one server. */
#ifndef CKPT_LIBCKPT_REMOTE_HTTP_TRY_H
#define CKPT_LIBCKPT_REMOTE_HTTP_TRY_H

#include "libckpt/remote/curl.h"
#include "libckpt/remote/http.h"

/* Settings of all requests. */
struct http_setting {
    const char *authorities;    /* file of certificates, or NULL */
    long        stall_seconds;  /* longest time with less than a KiB per second */
    long        retries;
};

struct http_try {
    const struct http_request *request;
    const volatile int        *stop;
    const char                *name;                /* for messages */
    char                       shown[HTTP_URL];     /* the first address without its query */
    char                       first[512];          /* its origin */
    char                       url[HTTP_URL];       /* of this hop */
    char                       to[HTTP_URL];        /* the address it redirects to */
    int                        hop;
    bool                       is_private;          /* the first host's address is private */
    bool                       unreachable;         /* no connection was made */
    bool                       acted;               /* the server may have acted on the request */
};

enum http_end {
    HTTP_DONE,
    HTTP_REDIRECTED,        /* to t->to */
    HTTP_AGAIN,             /* err is filled, and another try makes sense */
    HTTP_FAILED             /* err is filled */
};

/* Send one request for t->url on handle e. */
enum http_end http_try(struct http_try *t, const struct curl_calls *c, CURL *e,
                       const struct http_setting *set, struct http_answer *a,
                       struct ckpt_err *err);

#endif
