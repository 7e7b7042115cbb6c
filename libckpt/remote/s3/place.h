/*
 * s3/place - a bucket of S3 or of a compatible store, and requests to it.
 *
 * Its address is {endpoint}/{bucket}/ with AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (see s3/key.h);
 * without one a bucket has its own host at AWS.  A request to a bucket of another region is signed
 * again for that region, and one whose time the server finds skewed by the server's clock, once
 * each; where a session has expired, the key is found again.  What http.h says about retries holds
 * for all requests.
 */
#ifndef CKPT_LIBCKPT_REMOTE_S3_PLACE_H
#define CKPT_LIBCKPT_REMOTE_S3_PLACE_H

#include <pthread.h>

#include "libckpt/remote/http.h"
#include "libckpt/remote/s3/sigv4.h"

struct s3 {
    struct sigv4_key key;
    bool             is_signed;
    char             bucket[64];
    char             endpoint[600];     /* or "": AWS's */
    char             base[1024];        /* the bucket's address, "/" at its end */
    char             prefix[1100];      /* "" or "key/" */
    struct http_auth auth;
    time_t           skew;              /* seconds by which the server's clock is ahead */
    bool             moved, reset;      /* the region, and the clock, were corrected */
    time_t           renewed;           /* when another key took the place of an expired one */
    pthread_mutex_t  lock;              /* guards key, base, auth.origin, skew and these */
};

struct s3_call {
    const char             *name;       /* for messages */
    const char             *method;     /* as of http_request; NULL: GET, or HEAD */
    bool                    head;
    const char             *key;        /* of an object; "": the bucket */
    const char             *query;      /* escaped, without "?"; or NULL */
    const char             *headers;    /* lines, each ended by '\n'; or NULL */
    const struct http_body *body;
};

/* Find out what url, s3://bucket/key, names; *key points into url, behind the bucket.
 * CKPT_EUSAGE when it names no bucket. */
int s3_place_open(struct s3 *s, const char **key, const char *url, struct ckpt_err *err);
/* Forget the keys. */
void s3_place_close(struct s3 *s);
/* For requests; NULL without a key. */
const struct http_auth *s3_place_auth(const struct s3 *s);
/* Whether bodies are encrypted on their way: a signature need not cover them. */
bool s3_place_is_private(const struct s3 *s);
/* The address of an object; query as of s3_call. */
int s3_place_address(char url[HTTP_URL], struct s3 *s, const char *key, const char *query,
                     struct ckpt_err *err);
/*
 * A request; text (ckpt_free), or NULL, gets the answer's body.  Of an error, answer->problem_code
 * has the store's word.  Codes beyond those of http.h: CKPT_ENOTFOUND "no-bucket"; "no-upload" when
 * an upload in parts must begin anew; CKPT_ESTOPPED "moved" when a condition failed;
 * CKPT_EUNSUPPORTED "not-implemented".
 */
int s3_place_ask(char **text, struct s3 *s, const struct s3_call *c, struct http_answer *answer,
                 struct ckpt_err *err);
/* Say the store's word, where it is known, in place of the error rc about name. */
int s3_place_explain(const struct http_answer *a, const char *name, int rc, struct ckpt_err *err);

#endif
