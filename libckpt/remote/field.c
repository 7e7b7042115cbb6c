/* field - see field.h. */
#include "libckpt/remote/field.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

struct text {
    const char *at;
    size_t      n;
};

void field_clear(struct http_answer *a)
{
    memset(a, 0, sizeof *a);
    a->length = a->range_at = a->range_end = a->total = a->wait = a->linked_size = FIELD_NONE;
}

static struct text trim(const char *at, size_t n)
{
    while (n > 0 && (*at == ' ' || *at == '\t')) {
        at++;
        n--;
    }
    while (n > 0 && strchr(" \t\r\n", at[n - 1]) && at[n - 1])
        n--;
    return (struct text){at, n};
}

/* Parse leading digits; FIELD_NONE when there are none, or too many. */
static uint64_t number(struct text *t)
{
    uint64_t v = 0;
    size_t i = 0;

    for (; i < t->n && t->at[i] >= '0' && t->at[i] <= '9'; i++)
        if (i == 18)
            return FIELD_NONE;
        else
            v = v * 10 + (uint64_t)(t->at[i] - '0');
    t->at += i;
    t->n -= i;
    return i ? v : FIELD_NONE;
}

static uint64_t whole_number(struct text t)
{
    uint64_t v = number(&t);

    return t.n == 0 ? v : FIELD_NONE;
}

static bool skip(struct text *t, const char *what)
{
    size_t n = strlen(what);

    if (t->n < n || strncasecmp(t->at, what, n) != 0)
        return false;
    t->at += n;
    t->n -= n;
    return true;
}

/* Copy a value; one that does not fit, or has bytes invalid in a header, counts as absent. */
static void keep(char *dst, size_t size, struct text t)
{
    bool clean = t.n < size;

    assert(dst);
    for (size_t i = 0; clean && i < t.n; i++)
        clean = (unsigned char)t.at[i] >= 32 && t.at[i] != 127;
    if (clean)
        memcpy(dst, t.at, t.n);
    dst[clean ? t.n : 0] = '\0';
}

/* W/"abc", "abc" and abc all give the tag abc. */
static void keep_tag(char *dst, bool *weak, struct text t)
{
    bool is_weak = skip(&t, "W/");

    if (weak)
        *weak = is_weak;
    if (t.n >= 2 && t.at[0] == '"' && t.at[t.n - 1] == '"')
        t = (struct text){t.at + 1, t.n - 2};
    keep(dst, FIELD_BYTES, t);
}

/* bytes 0-99/1000, bytes 0-99/STAR, bytes STAR/1000 */
static void content_range(struct http_answer *a, struct text t)
{
    uint64_t at = FIELD_NONE, last = FIELD_NONE, total;

    if (!skip(&t, "bytes "))
        return;
    if (!skip(&t, "*")) {
        at = number(&t);
        if (at == FIELD_NONE || !skip(&t, "-"))
            return;
        last = number(&t);
        if (last == FIELD_NONE || last < at)
            return;
    }
    if (!skip(&t, "/"))
        return;
    if (t.n == 1 && *t.at == '*') {
        total = FIELD_NONE;
    } else {
        total = whole_number(t);
        if (total == FIELD_NONE || (last != FIELD_NONE && last >= total))
            return;
    }
    a->total = total;
    a->range_at = at;
    a->range_end = at == FIELD_NONE ? FIELD_NONE : last + 1;
}

/* Whether a link's rel parameter includes the word next: rel=next, rel="last next". */
static bool is_next(struct text t)
{
    while (t.n > 0) {
        struct text r = t;

        t = (struct text){t.at + 1, t.n - 1};
        if (!skip(&r, "rel"))
            continue;
        r = trim(r.at, r.n);
        if (!skip(&r, "="))
            continue;
        r = trim(r.at, r.n);
        if (skip(&r, "\"")) {
            const char *end = memchr(r.at, '"', r.n);

            r.n = end ? (size_t)(end - r.at) : r.n;
        } else {
            for (size_t i = 0; i < r.n; i++)
                if (strchr(";, \t", r.at[i]) && r.at[i])
                    r.n = i;
        }
        while (r.n > 0) {
            size_t k = 0;

            while (k < r.n && r.at[k] != ' ' && r.at[k] != '\t')
                k++;
            if (k == 4 && strncasecmp(r.at, "next", 4) == 0)
                return true;
            r = trim(r.at + k, r.n - k);
        }
    }
    return false;
}

/* Parse <address>; rel="next", among others separated by commas. */
static void link_next(struct http_answer *a, struct text t)
{
    while (t.n > 0) {
        const char *end, *open = memchr(t.at, '<', t.n);
        struct text address, rest;

        if (!open || !(end = memchr(open, '>', t.n - (size_t)(open - t.at)))) {
            a->bad_next = a->bad_next || is_next(t);
            return;
        }
        address = (struct text){open + 1, (size_t)(end - open) - 1};
        t.n -= (size_t)(end - t.at) + 1;
        t.at = end + 1;
        end = memchr(t.at, '<', t.n);
        rest = (struct text){t.at, end ? (size_t)(end - t.at) : t.n};
        if (is_next(rest)) {
            keep(a->next, sizeof a->next, address);
            a->bad_next = !a->next[0];
            return;
        }
        t.n -= rest.n;
        t.at += rest.n;
    }
}

/* "api";r=0;t=55: no requests are left for the next 55 seconds. */
static void rate_limit(struct http_answer *a, struct text t)
{
    uint64_t left = FIELD_NONE, reset = FIELD_NONE;

    while (t.n > 0) {
        if (skip(&t, ";r="))
            left = number(&t);
        else if (skip(&t, ";t="))
            reset = number(&t);
        else
            t = (struct text){t.at + 1, t.n - 1};
    }
    if (left == 0 && reset != FIELD_NONE && a->wait == FIELD_NONE)
        a->wait = reset + 1;
}

static void retry_after(struct http_answer *a, struct text t)
{
    uint64_t seconds = whole_number(t);

    if (seconds != FIELD_NONE)
        a->wait = seconds;
    else
        keep(a->date, sizeof a->date, t);
}

/* Parse HTTP/1.1 200 OK, and forget fields of an earlier response of the same exchange (100,
 * 103). */
static bool status_line(struct http_answer *a, struct text t)
{
    uint64_t status;

    if (!skip(&t, "HTTP/"))
        return false;
    field_clear(a);
    while (t.n > 0 && *t.at != ' ')
        t = (struct text){t.at + 1, t.n - 1};
    t = trim(t.at, t.n);
    status = number(&t);
    a->status = status < 1000 ? (long)status : 0;
    return true;
}

void field_line(struct http_answer *a, const char *line, size_t len)
{
    const char *colon;
    struct text name, t;

    if (status_line(a, trim(line, len)))
        return;
    colon = memchr(line, ':', len);
    if (!colon)
        return;
    name = (struct text){line, (size_t)(colon - line)};
    t = trim(colon + 1, len - name.n - 1);
#define IS(s) (name.n == sizeof(s) - 1 && strncasecmp(name.at, s, name.n) == 0)
    if (IS("content-length"))
        a->length = whole_number(t);
    else if (IS("content-range"))
        content_range(a, t);
    else if (IS("content-type"))
        keep(a->type, sizeof a->type, t);
    else if (IS("content-encoding"))
        keep(a->encoding, sizeof a->encoding, t);
    else if (IS("etag")) {
        keep_tag(a->etag, &a->weak, t);
        keep(a->tag, sizeof a->tag, t);
    } else if (IS("last-modified"))
        keep(a->modified, sizeof a->modified, t);
    else if (IS("link"))
        link_next(a, t);
    else if (IS("retry-after"))
        retry_after(a, t);
    else if (IS("ratelimit"))
        rate_limit(a, t);
    else if (IS("x-linked-etag"))
        keep_tag(a->linked_etag, NULL, t);
    else if (IS("x-linked-size"))
        a->linked_size = whole_number(t);
    else if (IS("x-repo-commit"))
        keep(a->commit, sizeof a->commit, t);
    else if (IS("x-error-message"))
        keep(a->problem, sizeof a->problem, t);
    else if (IS("x-error-code"))
        keep(a->problem_code, sizeof a->problem_code, t);
    else if (IS("location"))
        keep(a->location, sizeof a->location, t);
    else if (IS("docker-content-digest"))
        keep(a->content_digest, sizeof a->content_digest, t);
    else if (IS("www-authenticate") && strncasecmp(a->challenge, "bearer ", 7) != 0)
        keep(a->challenge, sizeof a->challenge, t);
    else if (IS("date"))
        keep(a->now, sizeof a->now, t);
    else if (IS("x-amz-bucket-region"))
        keep(a->region, sizeof a->region, t);
    else if (IS("x-amz-meta-sha256"))
        keep(a->sha256, sizeof a->sha256, t);
#undef IS
}
