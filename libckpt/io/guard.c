/* guard - see guard.h. */
#include "libckpt/io/guard.h"

#include <pthread.h>
#include <stdatomic.h>

#include "libckpt/base/crc32.h"
#include "libckpt/err.h"
#include "libckpt/io/file_at.h"

#define PIECE_BYTES ((size_t)1 << 20)

enum { UNTOUCHED, BEGUN, WRONG };

struct guard {
    const struct ckpt_sum *sum;
    size_t                 n;
    atomic_uchar          *state;       /* [n] */
};

int guard_new(struct guard **out, const struct ckpt_sum *sum, size_t n, struct ckpt_err *err)
{
    struct guard *g = ckpt_alloc(1, sizeof *g);

    *out = NULL;
    if (!g || !(g->state = ckpt_alloc(n ? n : 1, sizeof *g->state))) {
        guard_free(g);
        return ckpt_nomem(err, n);
    }
    g->sum = sum;
    g->n = n;
    *out = g;
    return 0;
}

void guard_free(struct guard *g)
{
    if (!g)
        return;
    ckpt_free(g->state);
    ckpt_free(g);
}

static int is_wrong(const struct ckpt_file *file, const struct ckpt_sum *s, struct ckpt_err *err)
{
    ckpt_fail_as(err, CKPT_EFORMAT, "digest",
                 "%s: %s: the %llu bytes at offset %llu have another checksum than their archive "
                 "says", ckpt_file_name(file), s->name, (unsigned long long)s->size,
                 (unsigned long long)s->offset);
    return ckpt_err_hint(err, "the file is damaged; --no-checksums takes it as it is");
}

/* Verify the whole range, whichever part of it was read. */
static int prove(const struct ckpt_file *file, const struct ckpt_sum *s, struct ckpt_err *err)
{
    size_t most = s->size < PIECE_BYTES ? (size_t)s->size : PIECE_BYTES;
    unsigned char *buf = ckpt_alloc_buffer(most);
    int rc = buf ? 0 : ckpt_nomem(err, most);
    uint32_t crc = 0;

    for (uint64_t at = 0, n; rc == 0 && at < s->size; at += n) {
        n = s->size - at < most ? s->size - at : most;
        rc = file_read(file, buf, (size_t)n, s->offset + at, err);
        if (rc == 0)
            crc = ckpt_crc32(crc, buf, (size_t)n);
    }
    ckpt_free(buf);
    if (rc == 0 && crc != s->crc)
        rc = is_wrong(file, s, err);
    return rc;
}

/* The first range that ends after offset. */
static size_t first_after(const struct guard *g, uint64_t offset)
{
    size_t lo = 0, hi = g->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (g->sum[mid].offset + g->sum[mid].size <= offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* -- beside the reading ----------------------------------------------------------------------- */

/* One range to verify. */
struct proof {
    struct proof           *next;
    const struct ckpt_file *file;
    struct guard           *guard;
    size_t                  i;
};

struct proofs {
    pthread_t       *thread;
    size_t           n_thread;
    pthread_mutex_t  lock;          /* of all below */
    pthread_cond_t   more;
    struct proof    *first, **last;
    bool             ended;
    int              failed;        /* code of the first failure, whose text is in err; 0: none */
    struct ckpt_err  err;
};

static _Thread_local struct proofs *handed_to;

static void *prove_all(void *ctx)
{
    struct proofs *p = ctx;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct ckpt_err err = {0};
        struct proof *one;
        int rc;

        while (!p->first && !p->ended)
            pthread_cond_wait(&p->more, &p->lock);
        one = p->first;
        if (!one)
            break;
        p->first = one->next;
        if (!p->first)
            p->last = &p->first;
        if (p->failed == 0) {
            pthread_mutex_unlock(&p->lock);
            rc = prove(one->file, &one->guard->sum[one->i], &err);
            if (rc)
                atomic_store(&one->guard->state[one->i], WRONG);
            pthread_mutex_lock(&p->lock);
            if (rc && p->failed == 0) {
                p->failed = rc;
                p->err = err;
            }
        }
        ckpt_free(one);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

int guard_proofs_new(struct proofs **out, size_t threads, struct ckpt_err *err)
{
    struct proofs *p = ckpt_alloc(1, sizeof *p);

    *out = NULL;
    if (!p || !(p->thread = ckpt_alloc(threads, sizeof *p->thread))) {
        ckpt_free(p);
        return ckpt_nomem(err, threads * sizeof *p->thread);
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->more, NULL);
    p->last = &p->first;
    while (p->n_thread < threads &&
           pthread_create(&p->thread[p->n_thread], NULL, prove_all, p) == 0)
        p->n_thread++;
    *out = p;
    if (p->n_thread)
        return 0;
    guard_proofs_end(p, err);
    *out = NULL;
    return ckpt_fail(err, CKPT_ENOMEM, "no thread can be started for checksums");
}

void guard_proofs_use(struct proofs *p) { handed_to = p; }

bool guard_proofs_failed(struct proofs *p)
{
    bool failed;

    pthread_mutex_lock(&p->lock);
    failed = p->failed != 0;
    pthread_mutex_unlock(&p->lock);
    return failed;
}

int guard_proofs_end(struct proofs *p, struct ckpt_err *err)
{
    int rc;

    if (!p)
        return 0;
    pthread_mutex_lock(&p->lock);
    p->ended = true;
    pthread_cond_broadcast(&p->more);
    pthread_mutex_unlock(&p->lock);
    for (size_t i = 0; i < p->n_thread; i++)
        pthread_join(p->thread[i], NULL);
    rc = p->failed;
    if (rc)
        *err = p->err;
    pthread_cond_destroy(&p->more);
    pthread_mutex_destroy(&p->lock);
    ckpt_free(p->thread);
    ckpt_free(p);
    return rc;
}

/* Hand range i to p. */
static int hand_over(struct proofs *p, struct guard *g, const struct ckpt_file *file, size_t i,
                     struct ckpt_err *err)
{
    struct proof *one = ckpt_alloc(1, sizeof *one);

    if (!one)
        return ckpt_nomem(err, sizeof *one);
    *one = (struct proof){.file = file, .guard = g, .i = i};
    pthread_mutex_lock(&p->lock);
    *p->last = one;
    p->last = &one->next;
    pthread_cond_signal(&p->more);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

int guard_prove(struct guard *g, const struct ckpt_file *file, uint64_t offset, uint64_t n,
                struct ckpt_err *err)
{
    for (size_t i = first_after(g, offset);
         n > 0 && i < g->n && g->sum[i].offset < offset + n; i++) {
        unsigned char was = UNTOUCHED;

        if (atomic_compare_exchange_strong(&g->state[i], &was, BEGUN)) {
            int rc = handed_to ? hand_over(handed_to, g, file, i, err)
                               : prove(file, &g->sum[i], err);

            if (rc) {
                atomic_store(&g->state[i], WRONG);
                return rc;
            }
        } else if (was == WRONG) {
            return is_wrong(file, &g->sum[i], err);
        }
    }
    return 0;
}
