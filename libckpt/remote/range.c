/* range - see range.h. */
#include "libckpt/remote/range_at.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/io/file_at.h"
#include "libckpt/log.h"

#define HEAD_BYTES   ((size_t)128 << 10)
#define AHEAD_BYTES  ((size_t)64 << 10)     /* size of the first small piece after the head */
#define AHEAD_MOST   ((size_t)4 << 20)
#define LARGE_BYTES  ((size_t)1 << 20)      /* a piece of this size is not kept in memory */
#define KEPT_BYTES   ((size_t)32 << 20)
#define PART_BYTES   ((size_t)8 << 20)      /* most bytes read in parts with CKPT_PROVE */

int range_new(struct range **out, const struct range_at *at, struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    struct range *r = http ? ckpt_alloc(1, sizeof *r) : NULL;

    *out = NULL;
    if (!http)
        return ckpt_err_code(err);
    if (r) {
        r->name = ckpt_strdup(at->name);
        r->url = ckpt_strdup(at->url);
    }
    if (!r || !r->name || !r->url) {
        if (r) {
            ckpt_free(r->name);
            ckpt_free(r->url);
        }
        ckpt_free(r);
        return ckpt_nomem(err, sizeof *r);
    }
    atomic_init(&r->refs, 1);
    r->http = http;
    r->auth = at->auth;
    r->size = at->size;
    snprintf(r->digest, sizeof r->digest, "%s", at->digest);
    r->got = at->got;
    r->renew = at->renew;
    r->tree = at->tree;
    r->file = at->file;
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->going, NULL);
    pthread_mutex_init(&r->way, NULL);
    *out = r;
    return 0;
}

void range_keep(struct range *r) { atomic_fetch_add(&r->refs, 1); }

void range_drop(struct range *r)
{
    if (!r || atomic_fetch_sub(&r->refs, 1) != 1)
        return;
    for (size_t i = 0; i < r->n_extent; i++)
        ckpt_free(r->extent[i].bytes);
    ckpt_file_close(r->whole);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->going);
    pthread_mutex_destroy(&r->way);
    explicit_bzero(r->direct, sizeof r->direct);
    ckpt_free(r->name);
    ckpt_free(r->url);
    ckpt_free(r);
}

void range_have(struct range *r, struct ckpt_file *file)
{
    r->whole = file;
    r->size = ckpt_file_size(file);
}

/* -- one request ------------------------------------------------------------------------------ */

/* What distinguishes versions of the bytes; "" when the server sends nothing suitable. */
static const char *tag_of(const struct http_answer *a)
{
    return a->etag[0] && !a->weak ? a->etag : a->modified[0] ? a->modified : a->etag;
}

int range_same(struct range *r, const struct http_answer *a, uint64_t total,
               struct ckpt_err *err)
{
    const char *hex = strchr(r->digest, '-');
    int rc = 0;

    pthread_mutex_lock(&r->way);
    if (r->size != FIELD_NONE && total != FIELD_NONE && total != r->size)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: has %llu bytes, it had %llu", r->name,
                          (unsigned long long)total, (unsigned long long)r->size);
    else if (hex && strncmp(r->digest, "sha256", 6) == 0 && a->linked_etag[0] &&
             strcmp(a->linked_etag, hex + 1) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: is another file now, of digest %s",
                          r->name, a->linked_etag);
    else if (!hex && r->met && strcmp(tag_of(a), r->tag) != 0)
        rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was read: %s, before "
                          "%s", r->name, tag_of(a), r->tag);
    else if (!r->met)
        snprintf(r->tag, sizeof r->tag, "%s", tag_of(a));
    r->met = r->met || rc == 0;
    pthread_mutex_unlock(&r->way);
    return rc;
}

struct piece {
    struct range  *r;
    unsigned char *dst;                 /* or */
    const struct range_stream *to;
    uint64_t       at, total;
    size_t         n, got, want;        /* want: bytes that the response has */
    bool           other;               /* the server sent another range */
};

static int begin_piece(void *ctx, const struct http_answer *a, struct ckpt_err *err)
{
    struct piece *p = ctx;
    uint64_t total = a->status == 206 ? a->total : a->length;
    int rc;

    p->got = 0;
    p->other = a->status == 206 ? a->range_at != p->at || a->range_end > p->at + p->n
                                : p->at != 0 || total == FIELD_NONE || total > p->n;
    if (p->other && a->status == 206)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: sent another range than the one that was asked "
                         "for", p->r->name);
    if ((rc = range_same(p->r, a, total, err)) != 0)
        return rc;
    if (p->other)
        return ckpt_fail_as(err, CKPT_EUNSUPPORTED, "ranges", "%s: the server does not "
                            "support ranges", p->r->name);
    p->total = total;
    p->want = a->status == 206 ? (size_t)(a->range_end - a->range_at) : (size_t)total;
    if (p->want < p->n && total != FIELD_NONE && p->at + p->want != total)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: sent %zu bytes at %llu, %zu were asked for",
                         p->r->name, p->want, (unsigned long long)p->at, p->n);
    return p->to ? p->to->begin(p->to->ctx, err) : 0;
}

static int put_piece(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct piece *p = ctx;

    if (n > p->want - p->got)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: sent more than it announced", p->r->name);
    p->got += n;
    if (p->to)
        return p->to->put(p->to->ctx, bytes, n, err);
    memcpy(p->dst + p->got - n, bytes, n);
    return 0;
}

static bool is_refused(const struct http_answer *a)
{
    return a->status == 401 || a->status == 403 || a->status == 404 || a->status == 410;
}

/* Ask for another address, unless another thread has since address number `was`. */
static int renew(struct range *r, unsigned was, struct ckpt_err *err)
{
    char *url = ckpt_alloc(1, HTTP_URL), *kept = NULL;
    const struct http_auth *auth = NULL;
    int rc = url ? 0 : ckpt_nomem(err, HTTP_URL);

    pthread_mutex_lock(&r->way);
    if (rc == 0 && r->renewed == was) {
        ckpt_log(CKPT_LOG_DEBUG, "%s: the address has expired; asking for another", r->name);
        rc = r->renew(r->tree, r->file, url, &auth, err);
        if (rc == 0 && !(kept = ckpt_strdup(url)))
            rc = ckpt_nomem(err, HTTP_URL);
    }
    if (kept) {
        ckpt_free(r->url);
        r->url = kept;
        r->auth = auth;
        r->direct[0] = '\0';
        r->renewed++;
    }
    pthread_mutex_unlock(&r->way);
    ckpt_free(url);
    return rc;
}

int range_ask(struct range *r, struct http_request *q, struct http_answer *a,
              struct ckpt_err *err)
{
    char *url = ckpt_alloc(2, HTTP_URL), *final = url ? url + HTTP_URL : NULL;
    bool direct, again, renews = r->renew != NULL;
    unsigned number;
    int rc;

    if (!url)
        return ckpt_nomem(err, 2 * HTTP_URL);
    do {
        pthread_mutex_lock(&r->way);
        direct = r->direct[0];
        number = r->renewed;
        snprintf(url, HTTP_URL, "%s", direct ? r->direct : r->url);
        q->auth = r->auth;
        pthread_mutex_unlock(&r->way);
        q->url = url;
        q->name = r->name;
        q->final = final;
        rc = http_get(r->http, q, a, err);
        again = rc && is_refused(a) && (direct || renews);
        if (again && !direct) {
            renews = false;
            ckpt_err_clear(err);
            rc = renew(r, number, err);
            again = rc == 0;
        }
        pthread_mutex_lock(&r->way);
        if (again && direct)
            r->direct[0] = '\0';
        else if (rc == 0 && !again && number == r->renewed && strcmp(final, r->url) != 0)
            memcpy(r->direct, final, HTTP_URL);
        pthread_mutex_unlock(&r->way);
    } while (again);
    explicit_bzero(url, 2 * HTTP_URL);
    ckpt_free(url);
    return rc;
}

static int get(struct range *r, void *dst, const struct range_stream *to, uint64_t at, size_t n,
               size_t *got, struct ckpt_err *err)
{
    struct piece p = {.r = r, .dst = dst, .to = to, .at = at, .n = n, .total = FIELD_NONE};
    struct http_request q = {.ranged = true, .at = at, .n = n, .limit = n, .begin = begin_piece,
                             .put = put_piece, .ctx = &p};
    struct http_answer a = {0};         /* the request may fail before any response */
    int rc = range_ask(r, &q, &a, err);

    if (a.status == 416 && at == 0 && a.total == 0) {   /* an empty file has no valid range */
        ckpt_err_clear(err);
        p.total = 0;
        rc = 0;
    }
    if (rc)
        return rc;
    if (p.got != p.want)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: sent %zu bytes of %zu", r->name, p.got, p.want);
    if (!got && p.got != n)
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: sent %zu bytes at %llu, %zu were asked for",
                         r->name, p.got, (unsigned long long)at, n);
    if (got)
        *got = p.got;
    if (r->size == FIELD_NONE)          /* only for the head, whose caller holds the lock */
        r->size = p.total != FIELD_NONE ? p.total : FIELD_NONE;
    return 0;
}

/* A file that is needed whole to be read. */
static const struct range_want to_read;

int range_get(struct range *r, void *dst, uint64_t at, size_t n, size_t *got,
              struct ckpt_err *err)
{
    return get(r, dst, NULL, at, n, got, err);
}

int range_get_stream(struct range *r, const struct range_stream *to, uint64_t at, size_t n,
                     struct ckpt_err *err)
{
    return get(r, NULL, to, at, n, NULL, err);
}

/* -- small pieces, kept ----------------------------------------------------------------------- */

/* Drop the oldest piece but the head. */
static void forget_one(struct range *r)
{
    r->kept_bytes -= r->extent[1].n;
    ckpt_free(r->extent[1].bytes);
    memmove(&r->extent[1], &r->extent[2], (r->n_extent - 2) * sizeof r->extent[0]);
    r->n_extent--;
}

/* Fetch n bytes at `at` and keep them.  With the lock held. */
static int keep_piece(struct range *r, uint64_t at, size_t n, struct ckpt_err *err)
{
    unsigned char *bytes = ckpt_alloc_buffer(n ? n : 1);
    size_t got = 0;
    int rc;

    if (!bytes)
        return ckpt_nomem(err, n);
    rc = range_get(r, bytes, at, n, &got, err);
    if (rc) {
        ckpt_free(bytes);
        return rc;
    }
    while (r->n_extent > 1 &&
           (r->n_extent == RANGE_EXTENTS || r->kept_bytes + got > KEPT_BYTES))
        forget_one(r);
    r->extent[r->n_extent++] = (struct extent){at, got, bytes};
    r->kept_bytes += got;
    return 0;
}

static int learn_whole(struct range *r, const struct range_want *want, struct ckpt_err *err);

/* Fetch the head, once.  With the lock held. */
static int need_head(struct range *r, struct ckpt_err *err)
{
    size_t n = r->size < HEAD_BYTES ? (size_t)r->size : HEAD_BYTES;

    if (r->whole || r->n_extent > 0 || r->size == 0 || r->no_ranges)
        return 0;
    if (r->trouble.code) {
        *err = r->trouble;
        return ckpt_err_code(err);
    }
    if (keep_piece(r, 0, n, err) == 0) {
        if (r->size == FIELD_NONE && r->n_extent)
            return ckpt_fail(err, CKPT_EPROTOCOL, "%s: the server does not tell its size",
                             r->name);
        return r->size <= HEAD_BYTES
                   ? range_fetch_prove(r, r->extent[0].bytes, r->extent[0].n, err) : 0;
    }
    if (err->code != CKPT_EUNSUPPORTED || strcmp(err->reason, "ranges") != 0) {
        r->trouble = *err;
        return ckpt_err_code(err);
    }
    ckpt_err_clear(err);
    r->no_ranges = true;
    return 0;
}

/* Whether the file is never read in parts. */
static bool comes_whole(const struct range *r, unsigned flags)
{
    return r->no_ranges || ((flags & CKPT_PROVE) && r->size <= PART_BYTES);
}

int range_head(struct range *r, unsigned flags, struct ckpt_err *err)
{
    bool whole;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    if (!comes_whole(r, flags))
        rc = need_head(r, err);
    whole = !r->whole && comes_whole(r, flags);
    pthread_mutex_unlock(&r->lock);
    return rc == 0 && whole ? learn_whole(r, &to_read, err) : rc;
}

/* The longest piece that contains the byte at offset. */
static const struct extent *find(const struct range *r, uint64_t offset)
{
    const struct extent *best = NULL;

    for (size_t i = 0; i < r->n_extent; i++) {
        const struct extent *e = &r->extent[i];

        if (offset >= e->at && offset - e->at < e->n &&
            (!best || e->at + e->n > best->at + best->n))
            best = e;
    }
    return best;
}

/* Fetch a small piece around the range: growing while reads continue where the last one ended. */
static int next_piece(struct range *r, uint64_t offset, size_t n, struct ckpt_err *err)
{
    const struct extent *last = r->n_extent ? &r->extent[r->n_extent - 1] : NULL;
    uint64_t at = offset;

    if (last && last->at + last->n == offset && r->ahead)
        r->ahead = r->ahead < AHEAD_MOST ? 2 * r->ahead : AHEAD_MOST;
    else
        r->ahead = AHEAD_BYTES;
    if (n < r->ahead)
        n = r->ahead;
    if (n >= r->size) {
        n = (size_t)r->size;
        at = 0;
    } else if (at > r->size - n) {     /* near the end: directories are read backwards from there */
        at = r->size - n;
    }
    return keep_piece(r, at, n, err);
}

/* -- the whole -------------------------------------------------------------------------------- */

/* Compare earlier reads with the whole file. */
static int compare_parts(struct range *r, struct ckpt_file *whole, struct ckpt_err *err)
{
    unsigned char *buf = ckpt_alloc_buffer(AHEAD_BYTES);
    int rc = buf ? 0 : ckpt_nomem(err, AHEAD_BYTES);

    for (size_t i = 0; rc == 0 && i < r->n_extent; i++)
        for (size_t at = 0; rc == 0 && at < r->extent[i].n; at += AHEAD_BYTES) {
            size_t left = r->extent[i].n - at, n = left < AHEAD_BYTES ? left : AHEAD_BYTES;

            rc = ckpt_file_read_at(whole, buf, n, r->extent[i].at + at, err);
            if (rc == 0 && memcmp(buf, r->extent[i].bytes + at, n) != 0)
                rc = ckpt_fail_as(err, CKPT_EFORMAT, "changed", "%s: changed while it was read",
                                  r->name);
        }
    ckpt_free(buf);
    return rc;
}

/* Fetch the whole file, unless another thread has done so. */
static int learn_whole(struct range *r, const struct range_want *want, struct ckpt_err *err)
{
    struct ckpt_file *whole = NULL;
    bool there;
    int rc = 0;

    pthread_mutex_lock(&r->going);
    pthread_mutex_lock(&r->lock);
    there = r->whole != NULL;
    pthread_mutex_unlock(&r->lock);
    if (!there)
        rc = range_fetch_whole(&whole, r, want, err);
    pthread_mutex_lock(&r->lock);
    if (whole && rc == 0)
        rc = compare_parts(r, whole, err);
    if (whole && rc == 0) {
        r->whole = whole;
        r->size = ckpt_file_size(whole);
        while (r->n_extent > 0)
            ckpt_free(r->extent[--r->n_extent].bytes);
        r->kept_bytes = 0;
    } else {
        ckpt_file_close(whole);
    }
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_unlock(&r->going);
    return rc;
}

/* -- the file --------------------------------------------------------------------------------- */

/* Whether enough was read in parts to fetch the whole file. */
static bool wants_whole(const struct range *r, size_t n, unsigned flags)
{
    return (flags & CKPT_PROVE) &&
           (r->kept_bytes >= PART_BYTES || n > PART_BYTES - r->kept_bytes);
}

static int read_range(void *self, void *dst, size_t n, uint64_t offset, unsigned flags,
                      struct ckpt_err *err)
{
    unsigned char *to = dst;
    struct range *r = self;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    while (rc == 0 && n > 0 && !r->whole) {
        const struct extent *e = find(r, offset);

        if (e && !comes_whole(r, flags)) {
            size_t from = (size_t)(offset - e->at), k = e->n - from < n ? e->n - from : n;

            memcpy(to, e->bytes + from, k);
            to += k;
            offset += k;
            n -= k;
        } else if (comes_whole(r, flags) || wants_whole(r, n, flags)) {
            pthread_mutex_unlock(&r->lock);
            rc = learn_whole(r, &to_read, err);
            pthread_mutex_lock(&r->lock);
        } else if (r->n_extent == 0 && offset < HEAD_BYTES && n <= HEAD_BYTES) {
            rc = need_head(r, err);
        } else if (n >= LARGE_BYTES && !(flags & CKPT_PROVE)) {
            pthread_mutex_unlock(&r->lock);
            return range_get(r, to, offset, n, NULL, err);
        } else {
            rc = next_piece(r, offset, n, err);
            /* It may be longer than what was asked for, and end the file. */
            if (rc == 0 && (flags & CKPT_PROVE) && r->kept_bytes > PART_BYTES) {
                pthread_mutex_unlock(&r->lock);
                rc = learn_whole(r, &to_read, err);
                pthread_mutex_lock(&r->lock);
            }
        }
    }
    pthread_mutex_unlock(&r->lock);
    return rc == 0 && n > 0 ? ckpt_file_read_at(r->whole, to, n, offset, err) : rc;
}

static int fd_of(void *self)
{
    struct range *r = self;
    uint64_t base;
    int fd;

    pthread_mutex_lock(&r->lock);
    fd = r->whole ? ckpt_file_fd(r->whole, &base) : -1;
    pthread_mutex_unlock(&r->lock);
    return fd;
}

static void keep(void *self) { range_keep(self); }
static void drop(void *self) { range_drop(self); }

static int fetch(void *self, bool take, bool *came, file_tick_fn *tick, void *ctx,
                 struct ckpt_err *err)
{
    return learn_whole(self, &(struct range_want){take, came, tick, ctx}, err);
}

static bool take(void *self, struct ckpt_out *out)
{
    struct range *r = self;
    uint64_t base;
    int fd = fd_of(r);

    return fd >= 0 && r->to_take && cache_take(r->key, ckpt_file_fd(r->whole, &base), out);
}

static const struct file_ops ops = {.read = read_range, .fd = fd_of, .fetch = fetch, .take = take,
                                    .keep = keep, .drop = drop};

int range_file(struct ckpt_file **out, struct range *r, unsigned flags, struct ckpt_err *err)
{
    int rc;

    *out = NULL;
    if (r->size == FIELD_NONE && (rc = range_head(r, flags, err)) != 0)
        return rc;
    range_keep(r);
    return file_make(out, &ops, r, r->size, r->name, flags, err);
}
