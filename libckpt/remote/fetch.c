/*
 * fetch - the whole of a remote file: in pieces, several at a time, digested in their order.
 *
 * The piece whose turn it is goes into digest and cache as it comes.  Pieces after it are fetched
 * beside it while the process has fewer than TRANSFERS going on, of this file or others; each is
 * held in memory until its turn, in one of PIECES buffers, so that memory is PIECES * PIECE
 * whatever the files' number and sizes.  Pieces that an interrupted fetch left in the cache are
 * not fetched again.  A server without ranges sends everything at once.
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/digest.h"
#include "libckpt/log.h"
#include "libckpt/base/pool.h"
#include "libckpt/remote/range_at.h"

#define PIECE     ((size_t)4 << 20)
#define PIECES    4
#define TRANSFERS 4
#define TELL      ((uint64_t)256 << 20)   /* fetching a file of this size is announced */

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
    uint64_t           at;              /* offset in a file that is sent at once */
    const void        *head;            /* the head, if it is the whole file; valid until the end */
    size_t             next;            /* piece whose turn it is; as failed, under the lock */
    bool               failed;
    bool               filled;          /* it was not in the cache */
};

/* -- turns ------------------------------------------------------------------------------------ */

/* What all fetches of the process share. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t  changed;
    size_t          fetches, transfers;
    unsigned char  *spare[PIECES];      /* buffers that are free, as far as they were mapped */
    size_t          n_spare, n_mapped;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void enter_fetch(void)
{
    pthread_mutex_lock(&all.lock);
    all.fetches++;
    pthread_mutex_unlock(&all.lock);
}

static void leave_fetch(void)
{
    pthread_mutex_lock(&all.lock);
    if (--all.fetches == 0)
        for (; all.n_spare > 0; all.n_mapped--)
            mem_unmap(all.spare[--all.n_spare], PIECE);
    pthread_mutex_unlock(&all.lock);
}

/* A buffer for a piece that is early; NULL when there is none.  With the lock held. */
static unsigned char *take_buffer(void)
{
    unsigned char *buf;

    if (all.n_spare > 0)
        return all.spare[--all.n_spare];
    buf = all.n_mapped < PIECES ? mem_map(PIECE) : NULL;
    all.n_mapped += buf != NULL;
    return buf;
}

/* Wait until piece i may be transferred: in its turn, or early, into *early.  False when another
 * piece has failed. */
static bool begin_piece(struct fetch *f, size_t i, unsigned char **early)
{
    bool go;

    *early = NULL;
    pthread_mutex_lock(&all.lock);
    while (!f->failed && f->next != i &&
           (all.transfers >= TRANSFERS || !(*early = take_buffer())))
        pthread_cond_wait(&all.changed, &all.lock);
    go = !f->failed;
    if (go)
        all.transfers++;
    pthread_mutex_unlock(&all.lock);
    return go;
}

/* The transfer has ended; an early piece waits for its turn.  False when there is none. */
static bool await_turn(struct fetch *f, size_t i, bool good)
{
    bool go;

    pthread_mutex_lock(&all.lock);
    all.transfers--;
    pthread_cond_broadcast(&all.changed);
    while (good && !f->failed && f->next != i)
        pthread_cond_wait(&all.changed, &all.lock);
    go = good && !f->failed;
    pthread_mutex_unlock(&all.lock);
    return go;
}

static void end_piece(struct fetch *f, unsigned char *early, bool good)
{
    pthread_mutex_lock(&all.lock);
    if (early)
        all.spare[all.n_spare++] = early;
    if (good)
        f->next++;
    else
        f->failed = true;
    pthread_cond_broadcast(&all.changed);
    pthread_mutex_unlock(&all.lock);
}

/* -- in pieces -------------------------------------------------------------------------------- */

struct piece {
    struct fetch             *f;
    unsigned char            *early;    /* held here until its turn; NULL: it is its turn */
    uint64_t                  at;
    size_t                    got;
    bool                      there;    /* the cache has it already */
    EVP_MD_CTX               *before;   /* the digest of what comes before it */
    struct ckpt_xxh128_state *sum;
};

/* Begin a piece, or begin it again. */
static int restart(void *ctx, struct ckpt_err *err)
{
    struct piece *p = ctx;

    p->got = 0;
    ckpt_xxh128_free(p->sum);
    p->sum = NULL;
    if (p->before && EVP_MD_CTX_copy_ex(p->f->proof.md, p->before) != 1)
        return ckpt_nomem(err, 256);
    return p->early ? 0 : ckpt_xxh128_new(&p->sum, err);
}

static int put_bytes(void *ctx, const void *bytes, size_t n, struct ckpt_err *err)
{
    struct piece *p = ctx;
    uint64_t at = p->at + p->got;
    int rc;

    p->got += n;
    if (p->early) {
        memcpy(p->early + (at - p->at), bytes, n);
        return 0;
    }
    if ((rc = proof_add(&p->f->proof, bytes, n, err)) != 0 || p->there)
        return rc;
    ckpt_xxh128_add(p->sum, bytes, n);
    return cache_put(p->f->sink, bytes, n, at, err);
}

/* Get piece i: from the cache, or the server. */
static int transfer(struct piece *p, size_t i, size_t n, struct ckpt_err *err)
{
    const struct range_stream to = {restart, put_bytes, p};
    unsigned char sum[CKPT_XXH128_BYTES];
    int rc = restart(p, err);

    p->there = true;
    if (rc || cache_has_piece(p->f->sink, i, n, p->at, put_bytes, p))
        return rc;
    p->there = false;
    rc = range_get_stream(p->f->r, &to, p->at, n, err);
    if (rc == 0 && p->early) {
        ckpt_xxh128(sum, p->early, n);
        rc = cache_put(p->f->sink, p->early, n, p->at, err);
    } else if (rc == 0) {
        ckpt_xxh128_end(p->sum, sum);
    }
    if (rc == 0)
        cache_note_piece(p->f->sink, i, sum);
    return rc;
}

static int get_piece(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct fetch *f = ctx;
    struct piece p = {.f = f, .at = (uint64_t)i * PIECE};
    uint64_t left = f->r->size - p.at;
    size_t n = left < PIECE ? (size_t)left : PIECE;
    bool go;
    int rc = 0;

    (void)worker;
    if (!begin_piece(f, i, &p.early))
        return 0;
    if (!p.early && f->proof.md &&
        (!(p.before = EVP_MD_CTX_new()) || EVP_MD_CTX_copy_ex(p.before, f->proof.md) != 1))
        rc = ckpt_nomem(err, 256);
    if (rc == 0)
        rc = transfer(&p, i, n, err);
    go = await_turn(f, i, rc == 0);
    if (go && p.early)
        rc = proof_add(&f->proof, p.early, n, err);
    end_piece(f, p.early, go && rc == 0);
    if (go && rc == 0 && f->want->tick)
        f->want->tick(f->want->ctx, n);
    EVP_MD_CTX_free(p.before);
    ckpt_xxh128_free(p.sum);
    return rc;
}

static int get_pieces(struct fetch *f, struct ckpt_err *err)
{
    size_t n = (size_t)((f->r->size + PIECE - 1) / PIECE);
    int rc;

    if ((rc = proof_begin(&f->proof, f->r, f->r->size, err)) != 0 || n == 0)
        return rc;
    enter_fetch();
    rc = ckpt_pool_run(TRANSFERS, n, get_piece, f, err);
    leave_fetch();
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
    rc = cache_find(out, key, r->size, r->name, err);
    if (rc == 0 && !*out)
        rc = cache_get(out, key, r->size, r->name, fill, &f, err);
    r->to_take = rc == 0 && f.filled && want->take;
    if (want->came)
        *want->came = f.filled;
    if (rc == 0 && r->got && !r->to_take)
        r->got(r->tree, r->file, *out);
    proof_free(&f.proof);
    return rc;
}
