/* s3/place - see place.h. */
#include "libckpt/remote/s3/place.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/mem.h"
#include "libckpt/remote/curl.h"
#include "libckpt/remote/s3/key.h"

#define TEXT_BYTES ((uint64_t)16 << 20)     /* of an answer: a page of 1000 keys, or of parts */
#define TRIES      4                        /* of a request that is corrected */
#define RENEWED_SECONDS 30                  /* a request signed before may be answered after */

/* -- where ------------------------------------------------------------------------------------ */

/* AWS's rule: 3 to 63 of a-z, 0-9, "-" and "."; other bytes could change the host. */
static bool is_bucket(const char *s, size_t n)
{
    bool good = n >= 3 && n <= 63 && s[0] != '.' && s[n - 1] != '.';

    for (size_t i = 0; good && i < n; i++)
        good = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '-' ||
               (s[i] == '.' && s[i - 1] != '.');
    return good;
}

static int set_base(struct s3 *s, struct ckpt_err *err)
{
    size_t k = strlen(s->endpoint);

    if (k > 0)
        snprintf(s->base, sizeof s->base, "%.*s/%s/", (int)(k - (s->endpoint[k - 1] == '/')),
                 s->endpoint, s->bucket);
    else if (strchr(s->bucket, '.'))    /* the certificate's wildcard does not cover a name with
                                           a dot */
        snprintf(s->base, sizeof s->base, "https://s3.%s.amazonaws.com/%s/", s->key.region,
                 s->bucket);
    else
        snprintf(s->base, sizeof s->base, "https://%s.s3.%s.amazonaws.com/", s->bucket,
                 s->key.region);
    return http_origin(s->auth.origin, s->base, err);
}

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    struct s3 *s = ctx;
    struct sigv4_key key;
    time_t skew;
    int rc;

    pthread_mutex_lock(&s->lock);
    key = s->key;
    skew = s->skew;
    pthread_mutex_unlock(&s->lock);
    rc = sigv4_sign(lines, size, &key, what, time(NULL) + skew, err);
    explicit_bzero(&key, sizeof key);
    return rc;
}

int s3_place_open(struct s3 *s, const char **key, const char *url, struct ckpt_err *err)
{
    const char *bucket = url + strlen("s3://");
    size_t n = strcspn(bucket, "/");
    int rc;

    if (!is_bucket(bucket, n)) {
        ckpt_fail(err, CKPT_EUSAGE, "%.300s: names no bucket", url);
        return ckpt_err_hint(err, "as in s3://bucket/key");
    }
    *s = (struct s3){.auth = {.sign = sign, .ctx = s, .secret = s->key.secret},
                     .lock = PTHREAD_MUTEX_INITIALIZER};
    snprintf(s->bucket, sizeof s->bucket, "%.*s", (int)n, bucket);
    *key = bucket + n + strspn(bucket + n, "/");
    rc = s3_key_find(&s->key, &s->is_signed, s->endpoint, sizeof s->endpoint, err);
    return rc ? rc : set_base(s, err);
}

void s3_place_close(struct s3 *s) { explicit_bzero(&s->key, sizeof s->key); }

const struct http_auth *s3_place_auth(const struct s3 *s) { return s->is_signed ? &s->auth : NULL; }

bool s3_place_is_private(const struct s3 *s) { return strncmp(s->base, "https:", 6) == 0; }

int s3_place_address(char url[HTTP_URL], struct s3 *s, const char *key, const char *query,
                     struct ckpt_err *err)
{
    size_t n;
    bool fits;

    pthread_mutex_lock(&s->lock);
    n = (size_t)snprintf(url, HTTP_URL, "%s", s->base);
    pthread_mutex_unlock(&s->lock);
    fits = n < HTTP_URL && http_escape(url + n, HTTP_URL - n, key, "/");
    n = fits ? strlen(url) : n;
    fits = fits && (!query ||
                    (size_t)snprintf(url + n, HTTP_URL - n, "?%s", query) < HTTP_URL - n);
    return fits ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: the address is too long", key);
}

/* -- errors ----------------------------------------------------------------------------------- */

/* What a store's words mean, where the status does not say enough. */
static const struct {
    const char *word;
    int         code;
    const char *reason, *hint;
} meanings[] = {
    {"AccessDenied", CKPT_EREFUSED, "", "the key has no right to this: see the bucket's policy"},
    {"SignatureDoesNotMatch", CKPT_EREFUSED, "", "the secret key is not that of the access key"},
    {"InvalidAccessKeyId", CKPT_EREFUSED, "", "the store does not know the access key"},
    {"ExpiredToken", CKPT_EREFUSED, "", "the session has expired: a new token is needed"},
    {"InvalidToken", CKPT_EREFUSED, "", "AWS_SESSION_TOKEN does not belong to the access key"},
    {"RequestTimeTooSkewed", CKPT_EREFUSED, "", "the clock of this host is wrong"},
    {"NoSuchBucket", CKPT_ENOTFOUND, "no-bucket", "--create of ckpt-push makes it"},
    {"NoSuchUpload", CKPT_ENOTFOUND, "no-upload", ""},
    {"InvalidPart", CKPT_ENOTFOUND, "no-upload", ""},
    {"InvalidPartOrder", CKPT_EPROTOCOL, "", ""},
    {"EntityTooSmall", CKPT_EPROTOCOL, "", "the store wants larger parts"},
    {"EntityTooLarge", CKPT_ELIMIT, "", "the store takes no object of this size"},
    {"QuotaExceeded", CKPT_EREFUSED, "quota", "the bucket is full"},
    {"XMinioStorageFull", CKPT_EIO, "no-space", "the store is full"},
    {"PreconditionFailed", CKPT_ESTOPPED, "moved", ""},
    {"ConditionalRequestConflict", CKPT_ESTOPPED, "no-upload", ""},
    {"NotImplemented", CKPT_EUNSUPPORTED, "not-implemented", ""},
    {"InternalError", CKPT_ESTOPPED, "retries", ""},
    {"SlowDown", CKPT_ESTOPPED, "retries", ""},
    {"ServiceUnavailable", CKPT_ESTOPPED, "retries", ""},
};

int s3_place_explain(const struct http_answer *a, const char *name, int rc, struct ckpt_err *err)
{
    const char *word = a->problem_code[0] ? a->problem_code
                       : a->status == 409 ? "ConditionalRequestConflict"
                       : a->status == 412 ? "PreconditionFailed"
                       : a->status == 501 ? "NotImplemented" : "";

    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++)
        if (strcmp(word, meanings[i].word) == 0) {
            ckpt_fail_as(err, meanings[i].code, meanings[i].reason, "%s: %s%s%.200s", name,
                         meanings[i].word, *a->problem ? ": " : "", a->problem);
            return *meanings[i].hint ? ckpt_err_hint(err, "%s", meanings[i].hint)
                                     : meanings[i].code;
        }
    return rc;
}

/* Whether an answer means that the session of the key is over; one to HEAD has no words. */
static bool is_expired(const struct s3 *s, const struct http_answer *a)
{
    return (a->status == 400 || a->status == 403) &&
           (strcmp(a->problem_code, "ExpiredToken") == 0 ||
            strcmp(a->problem_code, "TokenRefreshRequired") == 0 ||
            (!a->problem_code[0] && s->key.session[0]));
}

/* Find the key again.  True when there is another one by now. */
static bool renew(struct s3 *s)
{
    struct ckpt_err ignored = {0};
    struct sigv4_key key = {0};
    char endpoint[600];
    bool found = false, again;

    if (s3_key_find(&key, &found, endpoint, sizeof endpoint, &ignored))
        found = false;
    pthread_mutex_lock(&s->lock);
    again = found && (strcmp(key.id, s->key.id) != 0 || strcmp(key.session, s->key.session) != 0);
    if (again) {
        memcpy(s->key.id, key.id, sizeof key.id);
        memcpy(s->key.secret, key.secret, sizeof key.secret);
        memcpy(s->key.session, key.session, sizeof key.session);
        s->renewed = time(NULL);
    } else if (s->renewed && time(NULL) < s->renewed + RENEWED_SECONDS) {
        again = true;                   /* another thread has found it */
    }
    pthread_mutex_unlock(&s->lock);
    explicit_bzero(&key, sizeof key);
    return again;
}

/* What a request was signed with.  Another thread may correct these while it is on its way. */
struct used {
    char   region[64];
    time_t skew;
};

static struct used used_now(struct s3 *s)
{
    struct used u;

    pthread_mutex_lock(&s->lock);
    memcpy(u.region, s->key.region, sizeof u.region);
    u.skew = s->skew;
    pthread_mutex_unlock(&s->lock);
    return u;
}

/* Correct what the answer says is wrong with a request.  True when it makes sense to repeat it. */
static bool correct(struct s3 *s, const struct used *u, const struct http_answer *a)
{
    const struct curl_calls *curl;
    struct ckpt_err ignored = {0};
    time_t now = time(NULL), server;
    bool again = false;

    if (a->status == 400 && strcmp(a->problem_code, "RequestTimeout") == 0)
        return true;                    /* the body came too slowly */
    if (is_expired(s, a))
        return renew(s);
    pthread_mutex_lock(&s->lock);
    if ((a->status == 301 || a->status == 307 || a->status == 400 || a->status == 403) &&
        a->region[0] && strlen(a->region) < sizeof s->key.region &&
        strspn(a->region, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(a->region)) {
        again = strcmp(a->region, s->key.region) != 0 && !s->moved;
        if (again)
            snprintf(s->key.region, sizeof s->key.region, "%s", a->region);
        again = again && set_base(s, &ignored) == 0;
        s->moved = s->moved || again;
        again = again || strcmp(u->region, s->key.region) != 0;
    } else if (strcmp(a->problem_code, "RequestTimeTooSkewed") == 0 && s->reset) {
        again = u->skew != s->skew;
    } else if (strcmp(a->problem_code, "RequestTimeTooSkewed") == 0 &&
               curl_open(&curl, &ignored) == 0 && (server = curl->getdate(a->now, NULL)) >= 0) {
        s->skew = server - now;
        s->reset = again = true;
        ckpt_log(CKPT_LOG_WARNING, "s3://%s: the server's clock is %lld s ahead of this host's; "
                 "requests are signed with its time", s->bucket, (long long)s->skew);
    }
    pthread_mutex_unlock(&s->lock);
    return again;
}

/* -- requests --------------------------------------------------------------------------------- */

static int ask_once(char **text, struct s3 *s, const struct s3_call *c, struct http_answer *a,
                    struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    char *url = http ? ckpt_alloc(1, HTTP_URL) : NULL, *body = NULL;
    struct http_auth auth;
    size_t len = 0;
    int rc = url ? 0 : http ? ckpt_nomem(err, HTTP_URL) : ckpt_err_code(err);

    pthread_mutex_lock(&s->lock);
    auth = s->auth;
    pthread_mutex_unlock(&s->lock);
    rc = rc ? rc : s3_place_address(url, s, c->key, c->query, err);
    rc = rc ? rc : http_text(http, &body, &len, &(struct http_request){
        .url = url, .name = c->name, .auth = s->is_signed ? &auth : NULL, .method = c->method,
        .head = c->head, .headers = c->headers, .body = c->body, .limit = TEXT_BYTES}, a, err);
    if (rc == 0 && strlen(body) != len)
        rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the answer is no text", c->name);
    if (rc == 0 && text) {
        *text = body;
        body = NULL;
    }
    ckpt_free(body);
    ckpt_free(url);
    return rc;
}

int s3_place_ask(char **text, struct s3 *s, const struct s3_call *c, struct http_answer *answer,
                 struct ckpt_err *err)
{
    int rc = 0;

    if (text)
        *text = NULL;
    for (int k = 0; k < TRIES; k++) {
        struct used used = used_now(s);

        field_clear(answer);
        rc = ask_once(text, s, c, answer, err);
        if (rc == 0 || !answer->status || !correct(s, &used, answer))
            break;
    }
    return rc ? s3_place_explain(answer, c->name, rc, err) : 0;
}
