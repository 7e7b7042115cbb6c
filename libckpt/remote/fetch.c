/*
 * fetch - the whole of a remote file: in pieces, several at a time, digested in their order.
 *
 * Each worker holds one piece, and all fetches of the process together have PIECES of them, so
 * that memory is PIECES * PIECE whatever the files' number and sizes; a piece that arrives early
 * waits for its turn to be digested.  Pieces that an interrupted fetch left in the cache are not
 * fetched again.  A server without ranges sends everything at once.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/log.h"
#include "libckpt/base/pool.h"
#include "libckpt/remote/range_at.h"

#define PIECE   ((size_t)4 << 20)
#define PIECES  6
#define WORKERS 4                       /* of one file: another that is fetched beside it goes on */
#define TELL    ((uint64_t)256 << 20)   /* fetching a file of this size is announced */

/* A digest being computed; md is NULL where none is known. */
struct proof {
    EVP_MD_CTX *md;
    const char *hex;        /* the expected value */
    const char *name;
};

static void proof_free(struct proof *p) { EVP_MD_CTX_free(p->md); }

/* Start, or start again. */
static int proof_begin(struct proof *p, const struct range *r, uint64_t size,
                       struct ckpt_err *err)
{
    bool git = strncmp(r->digest, "sha1-", 5) == 0;
    char head[40];
    int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)size) + 1;

    p->name = r->name;
    p->hex = r->digest[0] ? strchr(r->digest, '-') + 1 : NULL;
    if (!p->hex)
        return 0;
    if (!p->md)
        p->md = EVP_MD_CTX_new();
    if (!p->md || EVP_DigestInit_ex(p->md, git ? EVP_sha1() : EVP_sha256(), NULL) != 1 ||
        (git && EVP_DigestUpdate(p->md, head, (size_t)n) != 1))
        return ckpt_nomem(err, 256);
    return 0;
}

static int proof_add(struct proof *p, const void *bytes, size_t n, struct ckpt_err *err)
{
    return p->md && EVP_DigestUpdate(p->md, bytes, n) != 1 ? ckpt_nomem(err, 256) : 0;
}

static int proof_end(struct proof *p, struct ckpt_err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1];
    unsigned n = 0;

    if (!p->md)
        return 0;
    if (EVP_DigestFinal_ex(p->md, digest, &n) != 1)
        return ckpt_nomem(err, 256);
    ckpt_digest_hex(hex, digest, n);
    return strcmp(hex, p->hex) == 0
               ? 0 : ckpt_fail_as(err, CKPT_EFORMAT, "digest", "%s: has the digest %s, %s was "
                                  "listed", p->name, hex, p->hex);
}

int range_fetch_prove(const struct range *r, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct proof p = {0};
    int rc = proof_begin(&p, r, n, err);

    if (rc == 0)
        rc = proof_add(&p, bytes, n, err);
    if (rc == 0)
        rc = proof_end(&p, err);
    proof_free(&p);
    return rc;
}

struct fetch {
    struct range      *r;
    struct cache_sink *sink;
    const struct range_want *want;
    struct proof       proof;
    unsigned char     *buf;             /* [workers][PIECE] */
    uint64_t           at;              /* offset in a file that is sent at once */
    const void        *head;            /* the head, if it is the whole file; valid until the end */
    pthread_mutex_t    lock;
    pthread_cond_t     arrived;
    size_t             next;            /* next piece to be digested */
    bool               failed;
    bool               filled;          /* it was not in the cache */
};

/* -- memory ----------------------------------------------------------------------------------- */

static pthread_mutex_t pieces_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t pieces_free = PTHREAD_COND_INITIALIZER;
static size_t pieces_left = PIECES;

/* Take up to n pieces, at least one: who has one can always go on to the end of its file. */
static size_t take_pieces(size_t n)
{
    pthread_mutex_lock(&pieces_lock);
    while (pieces_left == 0)
        pthread_cond_wait(&pieces_free, &pieces_lock);
    n = n < pieces_left ? n : pieces_left;
    pieces_left -= n;
    pthread_mutex_unlock(&pieces_lock);
    return n;
}

static void give_pieces(size_t n)
{
    pthread_mutex_lock(&pieces_lock);
    pieces_left += n;
    pthread_cond_broadcast(&pieces_free);
    pthread_mutex_unlock(&pieces_lock);
}

/* -- in pieces -------------------------------------------------------------------------------- */

static int digest_in_order(struct fetch *f, size_t i, const void *bytes, size_t n,
                           struct ckpt_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&f->lock);
    while (f->next != i && !f->failed)
        pthread_cond_wait(&f->arrived, &f->lock);
    if (!f->failed) {
        rc = proof_add(&f->proof, bytes, n, err);
        f->next++;
    }
    pthread_cond_broadcast(&f->arrived);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int get_piece(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct fetch *f = ctx;
    unsigned char *buf = f->buf + worker * PIECE;
    uint64_t at = (uint64_t)i * PIECE, left = f->r->size - at;
    size_t n = left < PIECE ? (size_t)left : PIECE;
    int rc = 0;

    if (!cache_has_piece(f->sink, i, buf, n, at)) {
        rc = range_get(f->r, buf, at, n, NULL, err);
        if (rc == 0)
            rc = cache_put_piece(f->sink, i, buf, n, at, err);
    }
    if (rc == 0)
        rc = digest_in_order(f, i, buf, n, err);
    if (rc == 0 && f->want->tick)
        f->want->tick(f->want->ctx, n);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&f->lock);
    f->failed = true;
    pthread_cond_broadcast(&f->arrived);
    pthread_mutex_unlock(&f->lock);
    return rc;
}

static int get_pieces(struct fetch *f, struct ckpt_err *err)
{
    size_t n = (size_t)((f->r->size + PIECE - 1) / PIECE), workers;
    int rc;

    if ((rc = proof_begin(&f->proof, f->r, f->r->size, err)) != 0 || n == 0)
        return rc;
    workers = take_pieces(n < WORKERS ? n : WORKERS);
    f->buf = mem_map(workers * PIECE);
    rc = f->buf ? ckpt_pool_run(workers, n, get_piece, f, err) : ckpt_nomem(err, workers * PIECE);
    mem_unmap(f->buf, workers * PIECE);
    give_pieces(workers);
    return rc;
}

/* -- at once ---------------------------------------------------------------------------------- */

static int begin_all(void *ctx, const struct http_answer *a, struct ckpt_err *err)
{
    struct fetch *f = ctx;
    int rc;

    f->at = 0;
    if ((rc = range_same(f->r, a, a->length, err)) != 0)
        return rc;
    return proof_begin(&f->proof, f->r, f->r->size, err);
}

static int put_all(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct fetch *f = ctx;
    int rc;

    if ((rc = proof_add(&f->proof, bytes, n, err)) != 0 ||
        (rc = cache_put(f->sink, bytes, n, f->at, err)) != 0)
        return rc;
    f->at += n;
    if (f->want->tick)
        f->want->tick(f->want->ctx, n);
    return 0;
}

static int get_all(struct fetch *f, struct ckpt_err *err)
{
    struct http_request q = {.limit = f->r->size, .begin = begin_all, .put = put_all, .ctx = f};
    struct http_answer a = {0};
    int rc;

    if ((rc = range_ask(f->r, &q, &a, err)) != 0)
        return rc;
    if (f->r->size != FIELD_NONE && f->at != f->r->size)
        return ckpt_fail_as(err, CKPT_EFORMAT, "truncated", "%s: %llu bytes came of %llu",
                            f->r->name, (unsigned long long)f->at,
                            (unsigned long long)f->r->size);
    return 0;
}

/* -- both ------------------------------------------------------------------------------------- */

static int fill(void *ctx, struct cache_sink *sink, struct ckpt_err *err)
{
    struct fetch *f = ctx;
    int rc;

    f->sink = sink;
    f->filled = true;
    f->next = 0;
    f->failed = false;
    if (f->head)
        return cache_put(sink, f->head, (size_t)f->r->size, 0, err)
                   ? ckpt_err_code(err)
                   : range_fetch_prove(f->r, f->head, (size_t)f->r->size, err);
    if (f->r->size != FIELD_NONE && f->r->size >= TELL)
        ckpt_log(CKPT_LOG_NOTE, "%s: %.1f GB are fetched", f->r->name, (double)f->r->size / 1e9);
    if (f->r->no_ranges || f->r->size == FIELD_NONE) {
        rc = get_all(f, err);
    } else {
        rc = get_pieces(f, err);
        if (rc == CKPT_EUNSUPPORTED && strcmp(err->reason, "ranges") == 0) {
            ckpt_err_clear(err);
            f->r->no_ranges = true;
            rc = get_all(f, err);
        }
    }
    return rc ? rc : proof_end(&f->proof, err);
}

/* Bytes without a digest are identified by their address and version tag. */
static void key_of(char key[CACHE_KEY], struct range *r)
{
    char text[HTTP_URL + FIELD_BYTES + 32];

    snprintf(key, CACHE_KEY, "%s", r->digest);
    if (*key)
        return;
    if (r->met && r->tag[0] &&
        (size_t)snprintf(text, sizeof text, "%s\n%s\n%llu", r->url, r->tag,
                         (unsigned long long)r->size) < sizeof text)
        cache_key(key, "url", text);
}

int range_fetch_whole(struct ckpt_file **out, struct range *r, const struct range_want *want,
                      struct ckpt_err *err)
{
    struct fetch f = {.r = r, .want = want};
    char *key = r->key;
    int rc;

    key_of(key, r);
    pthread_mutex_lock(&r->lock);
    if (r->n_extent > 0 && r->extent[0].at == 0 && r->extent[0].n == r->size)
        f.head = r->extent[0].bytes;
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_init(&f.lock, NULL);
    pthread_cond_init(&f.arrived, NULL);
    rc = cache_find(out, key, r->size, r->name, err);
    if (rc == 0 && !*out)
        rc = cache_get(out, key, r->size, r->name, fill, &f, err);
    r->to_take = rc == 0 && f.filled && want->take;
    if (want->came)
        *want->came = f.filled;
    if (rc == 0 && r->got && !r->to_take)
        r->got(r->tree, r->file, *out);
    proof_free(&f.proof);
    pthread_cond_destroy(&f.arrived);
    pthread_mutex_destroy(&f.lock);
    return rc;
}
