/* s3 - see s3.h. */
#include "libckpt/remote/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libckpt/err.h"
#include "libckpt/remote/cache/cache.h"
#include "libckpt/remote/sigv4.h"
#include "libckpt/base/secret.h"

#define PAGE_BYTES ((uint64_t)16 << 20)
#define MAX_PAGES  10000
#define NEXT_BYTES 1100
#define KEY_BYTES  3400           /* 1024 bytes, each as %XX */

/* State of a place, for the life of the process: objects are requested later. */
struct s3 {
    struct sigv4_key key;
    struct http_auth auth;
    bool             is_signed;
    char             base[1024];        /* the bucket's address, "/" at its end */
    char             prefix[1100];      /* "" or "key/" */
};

/* -- who asks --------------------------------------------------------------------------------- */

/* The value of name in [section] of an INI file; false when it is not there. */
static bool ini(char *out, size_t size, const char *path, const char *section, const char *name)
{
    struct ckpt_err ignored = {0};
    struct ckpt_arena a = {0};
    struct ckpt_file *file;
    char *text = NULL;
    bool in = false, found = false;
    size_t n = 0, k = strlen(section);

    if (ckpt_file_open(&file, path, CKPT_FOLLOW, &ignored))
        return false;
    if (ckpt_file_slurp(file, &a, 1 << 20, &text, &n, &ignored))
        text = NULL;
    for (char *line = text, *end; line && *line && !found; line = end) {
        size_t len = strcspn(line, "\r\n"), at = strspn(line, " \t"), m = strlen(name);

        end = line + len + strspn(line + len, "\r\n");
        if (line[at] == '[')
            in = strncmp(line + at + 1, section, k) == 0 && line[at + 1 + k] == ']';
        else if (in && len > at + m && strncmp(line + at, name, m) == 0) {
            const char *v = line + at + m;

            v += strspn(v, " \t");
            if (*v++ != '=')
                continue;
            v += strspn(v, " \t");
            len = (size_t)(line + len - v);
            while (len > 0 && strchr(" \t", v[len - 1]))
                len--;
            found = len > 0 && (size_t)snprintf(out, size, "%.*s", (int)len, v) < size;
        }
    }
    if (text)
        explicit_bzero(text, n);
    ckpt_arena_release(&a);
    ckpt_file_close(file);
    return found;
}

static bool from_env(char *out, size_t size, const char *name)
{
    const char *v = getenv(name);

    return v && *v && (size_t)snprintf(out, size, "%s", v) < size;
}

/* The path of a file of the AWS tools. */
static void aws_file(char path[4096], const char *variable, const char *fallback)
{
    if (!cache_place(path, 4096, variable, "", fallback))
        path[0] = '\0';
}

static void find_key(struct s3 *s)
{
    char path[4096], profile[128] = "default", section[160];
    struct sigv4_key *k = &s->key;

    from_env(profile, sizeof profile, "AWS_PROFILE");
    s->is_signed = from_env(k->id, sizeof k->id, "AWS_ACCESS_KEY_ID") &&
                   from_env(k->secret, sizeof k->secret, "AWS_SECRET_ACCESS_KEY");
    if (s->is_signed) {
        from_env(k->session, sizeof k->session, "AWS_SESSION_TOKEN");
    } else {
        aws_file(path, "AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
        s->is_signed = ini(k->id, sizeof k->id, path, profile, "aws_access_key_id") &&
                       ini(k->secret, sizeof k->secret, path, profile, "aws_secret_access_key");
        ini(k->session, sizeof k->session, path, profile, "aws_session_token");
    }
    ckpt_secret_add(k->session);
    aws_file(path, "AWS_CONFIG_FILE", "/.aws/config");
    snprintf(section, sizeof section, "%s%s", strcmp(profile, "default") == 0 ? "" : "profile ",
             profile);
    if (!from_env(k->region, sizeof k->region, "AWS_REGION") &&
        !from_env(k->region, sizeof k->region, "AWS_DEFAULT_REGION") &&
        !ini(k->region, sizeof k->region, path, section, "region"))
        snprintf(k->region, sizeof k->region, "us-east-1");
}

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    return sigv4_sign(lines, size, ctx, what, time(NULL), err);
}

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

static int set_up(struct s3 *s, const char *url, const char **key, struct ckpt_err *err)
{
    const char *bucket = url + strlen("s3://");
    int n = (int)strcspn(bucket, "/");
    char endpoint[600];
    size_t k;

    if (!is_bucket(bucket, (size_t)n)) {
        ckpt_fail(err, CKPT_EUSAGE, "%.300s: names no bucket", url);
        return ckpt_err_hint(err, "as in s3://bucket/key");
    }
    *key = bucket + n + strspn(bucket + n, "/");
    find_key(s);
    if (from_env(endpoint, sizeof endpoint, "AWS_ENDPOINT_URL_S3") ||
        from_env(endpoint, sizeof endpoint, "AWS_ENDPOINT_URL")) {
        k = strlen(endpoint);
        k -= endpoint[k - 1] == '/';
        snprintf(s->base, sizeof s->base, "%.*s/%.*s/", (int)k, endpoint, n, bucket);
    } else if (memchr(bucket, '.', (size_t)n)) {        /* the certificate's wildcard does not
                                                           cover a name with a dot */
        snprintf(s->base, sizeof s->base, "https://s3.%s.amazonaws.com/%.*s/", s->key.region, n,
                 bucket);
    } else {
        snprintf(s->base, sizeof s->base, "https://%.*s.s3.%s.amazonaws.com/", n, bucket,
                 s->key.region);
    }
    s->auth = (struct http_auth){.sign = sign, .ctx = &s->key, .secret = s->key.secret};
    return http_origin(s->auth.origin, s->base, err);
}

static int address(char url[HTTP_URL], const struct s3 *s, const char *key, struct ckpt_err *err)
{
    size_t n = (size_t)snprintf(url, HTTP_URL, "%s", s->base);

    return n < HTTP_URL && http_escape(url + n, HTTP_URL - n, key, "/")
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%.200s: the address is too long", key);
}

static int locate(const struct tree *t, const struct tree_file *f, char url[HTTP_URL],
                  struct ckpt_file **have, struct ckpt_err *err)
{
    const struct s3 *s = t->self;
    char key[5300];

    *have = NULL;
    snprintf(key, sizeof key, "%s%s", s->prefix, f->path);
    return address(url, s, key, err);
}

/* -- lists ------------------------------------------------------------------------------------ */

/* The text of <name> between from and end (NULL: the end of the text); false when absent. */
static bool value(char *out, size_t size, const char *from, const char *end, const char *name)
{
    char open[40], close[40];
    const char *to;
    int n = snprintf(open, sizeof open, "<%s>", name);

    snprintf(close, sizeof close, "</%s>", name);
    from = strstr(from, open);
    to = from ? strstr(from, close) : NULL;
    if (!to || (end && to >= end) || (size_t)(to - from - n) >= size)
        return false;
    memcpy(out, from + n, (size_t)(to - from - n));
    out[to - from - n] = '\0';
    return true;
}

/* Decode &amp; and the like in place; false for an unknown entity. */
static bool plain_text(char *s)
{
    static const struct { const char *name; char c; } named[] = {
        {"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''},
    };
    char *to = s;

    while (*s) {
        bool known = *s != '&';

        for (size_t i = 0; !known && i < sizeof named / sizeof named[0]; i++)
            if (strncmp(s + 1, named[i].name, strlen(named[i].name)) == 0) {
                *to++ = named[i].c;
                s += 1 + strlen(named[i].name);
                known = true;
                break;
            }
        if (!known)
            return false;              /* numeric ones do not occur: keys were requested with %XX */
        if (*s && *s != '&')
            *to++ = *s++;
    }
    *to = '\0';
    return true;
}

static int bad_page(struct tree *t, const char *what, struct ckpt_err *err)
{
    return ckpt_fail(err, CKPT_EPROTOCOL, "%s: %s", t->name, what);
}

/* Parse one <Contents>, between from and end. */
static int read_object(struct tree *t, const char *from, const char *end, const char *prefix,
                       bool escaped, struct ckpt_err *err)
{
    char key[KEY_BYTES], size[24], *stop;
    unsigned long long n;

    if (!value(key, sizeof key, from, end, "Key") || !value(size, sizeof size, from, end, "Size") ||
        !plain_text(key))
        return bad_page(t, "lists an object without a key or size", err);
    for (char *p = key; escaped && *p; p++)
        *p = *p == '+' ? ' ' : *p;
    if (escaped && !http_unescape(key))
        return bad_page(t, "lists a key that cannot be read", err);
    n = strtoull(size, &stop, 10);
    if (*stop || *size < '0' || *size > '9' || strlen(size) > 18)
        return bad_page(t, "lists an object with a size that is none", err);
    if (strncmp(key, prefix, strlen(prefix)) != 0 || !key[strlen(prefix)] ||
        key[strlen(key) - 1] == '/')
        return 0;               /* an empty object that stands for a folder, as some tools create */
    return tree_add(t, key + strlen(prefix), n, "", err);
}

int s3_read_page(struct tree *t, const char *text, const char *prefix, char next[1100],
                 struct ckpt_err *err)
{
    static const char open[] = "<Contents>", close[] = "</Contents>";
    const char *at = strstr(text, "<ListBucketResult"), *end;
    bool escaped = strstr(text, "<EncodingType>url</EncodingType>") != NULL;
    int rc;

    next[0] = '\0';
    if (!at || !strstr(at, "</ListBucketResult>"))
        return bad_page(t, "the answer is no list of a bucket", err);
    while ((at = strstr(at, open)) != NULL) {
        end = strstr(at, close);
        if (!end)
            return bad_page(t, "the list breaks off", err);
        if ((rc = read_object(t, at, end, prefix, escaped, err)) != 0)
            return rc;
        at = end + sizeof close - 1;
    }
    if (strstr(text, "<IsTruncated>true</IsTruncated>") &&
        (!value(next, NEXT_BYTES, text, NULL, "NextContinuationToken") || !plain_text(next) ||
         !*next))
        return bad_page(t, "the list's continuation token cannot be used", err);
    return 0;
}

static int list(struct tree *t, struct s3 *s, struct http *http, struct ckpt_err *err)
{
    char *url = ckpt_alloc(1, HTTP_URL), prefix[3400], next[NEXT_BYTES] = "", token[3400];
    int rc = url ? 0 : ckpt_nomem(err, HTTP_URL), pages = 0;

    if (rc == 0 && !http_escape(prefix, sizeof prefix, s->prefix, ""))
        rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the key is too long", t->name);
    while (rc == 0) {
        struct http_answer a;
        char *text = NULL;
        size_t len;

        if (!http_escape(token, sizeof token, next, ""))
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the list's continuation token cannot be used",
                           t->name);
        if (rc == 0 && (size_t)snprintf(url, HTTP_URL, "%s?%s%s%sencoding-type=url&list-type=2&"
                                        "prefix=%s", s->base, *next ? "continuation-token=" : "",
                                        token, *next ? "&" : "", prefix) >= HTTP_URL)
            rc = ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", t->name);
        if (rc == 0)
            rc = http_text(http, &text, &len, &(struct http_request){
                .url = url, .name = t->name, .auth = s->is_signed ? &s->auth : NULL,
                .limit = PAGE_BYTES}, &a, err);
        if (rc == 0)
            rc = strlen(text) == len ? s3_read_page(t, text, s->prefix, next, err)
                                     : bad_page(t, "the answer is no text", err);
        ckpt_free(text);
        if (rc || !*next)
            break;
        if (++pages == MAX_PAGES)
            rc = bad_page(t, "the list does not end", err);
    }
    ckpt_free(url);
    return rc ? rc : tree_ready(t, err);
}

int s3_open(struct tree **tree, struct range **object, const char *url, struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    struct s3 *s = http ? ckpt_alloc(1, sizeof *s) : NULL;
    struct tree *t = NULL;
    const char *key = "";
    char *at = NULL;
    size_t n = strlen(url);
    int rc = s ? 0 : http ? ckpt_nomem(err, sizeof *s) : ckpt_err_code(err);

    *tree = NULL;
    *object = NULL;
    if (rc == 0)
        rc = set_up(s, url, &key, err);
    if (rc == 0 && strlen(key) + 2 > sizeof s->prefix)
        rc = ckpt_fail(err, CKPT_ELIMIT, "%.200s: a key of %zu bytes", url, strlen(key));
    if (rc == 0)
        rc = tree_new(&t, url, err);
    if (rc == 0) {
        while (n > 0 && t->name[n - 1] == '/')
            t->name[--n] = '\0';
        snprintf(s->prefix, sizeof s->prefix, "%s%s", key,
                 *key && key[strlen(key) - 1] != '/' ? "/" : "");
        t->self = s;
        t->locate = locate;
        t->auth = s->is_signed ? &s->auth : NULL;
        rc = list(t, s, http, err);
    }
    if (rc == 0 && t->n > 0) {
        *tree = t;
        return 0;
    }
    if (rc == 0 && (at = ckpt_alloc(1, HTTP_URL)) == NULL)
        rc = ckpt_nomem(err, HTTP_URL);
    if (rc == 0 && (!*key || key[strlen(key) - 1] == '/'))
        rc = ckpt_fail(err, CKPT_ENOTFOUND, "%.300s: nothing lies there", url);
    if (rc == 0)
        rc = address(at, s, key, err);
    if (rc == 0)
        rc = range_new(object, &(struct range_at){.name = url, .url = at, .auth = t->auth,
                                                  .size = FIELD_NONE, .digest = ""}, err);
    ckpt_free(at);
    tree_free(t);
    if (s && !(*object && s->is_signed)) {      /* an object keeps only what signing needs */
        explicit_bzero(s, sizeof *s);
        ckpt_free(s);
    }
    return rc;
}
