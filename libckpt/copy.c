/* copy - see copy.h. */
#include "libckpt/copy.h"

#include <pthread.h>
#include <time.h>

#include "libckpt/base/opts.h"
#include "libckpt/base/pool.h"
#include "libckpt/err.h"
#include "libckpt/io/guard.h"

#define MOST_WORKERS  64                    /* where the caller does not say */
#define OPEN_LANES    16                    /* files that are written at a time, at most */
#define PIECE         ((size_t)4 << 20)     /* bytes that a worker takes at a time */
#define LEAST_BUFFER  ((size_t)1 << 20)     /* where many workers share ... */
#define ALL_BUFFERS   ((size_t)64 << 20)    /* ... this much */
#define LEAST_CHUNK   ((size_t)4096)    /* holds an element of any type */
#define MOST_CHUNK    ((size_t)1 << 30)
#define TICK_NS       200000000 /* five calls of progress a second */
#define COPY_CHUNK    ((uint64_t)64 << 20)  /* a range that stays inside the kernel */

/* A tensor of the sink, cut into ranges ("pieces") of step elements, the outer ones shorter. */
struct part {
    size_t  sink, source;       /* its index on either side */
    const struct ckpt_out *out; /* the file it goes into; NULL: unknown */
    size_t  first;              /* number of its first piece, counted over all tensors */
    int64_t step;
    int64_t less;               /* the first piece is shorter by this much, so that later ones
                                   start page-aligned in the output */
};

/*
 * Neighbouring parts that go into one file.  The kernel lets one writer at a time into a file, so
 * workers take pieces of several lanes in turn, each from its beginning to its end.
 */
struct lane {
    size_t next, end;           /* pieces */
};

struct job {
    struct ckpt_sink            *sink;
    struct ckpt_source          *src;
    const struct ckpt_copy_opts *opts;
    size_t                       chunk, piece;  /* bytes of a buffer, and of a piece */
    struct part                 *part;      /* [n_part], by first */
    size_t                       n_part, n_piece;
    unsigned char              **buffer;    /* [workers][chunk + a page] */
    struct proofs               *proofs;    /* verifies the source's checksums; NULL: the workers
                                               do */
    struct lane                 *lane;      /* [n_lane] */
    size_t                       n_lane;
    pthread_mutex_t              lock;      /* of all below */
    size_t                      *open, n_open;  /* lanes that pieces are taken from in turn */
    size_t                       next_lane, turn;
    pthread_cond_t               next_changed;
    size_t                       next_piece; /* stream: the piece to be written next */
    int                          failed;    /* code of the first failure, whose text is in err */
    struct ckpt_err              err;
    uint64_t                     done, total;   /* bytes */
    struct timespec              told;
};

static int match(const struct ckpt_tensor *to, const struct ckpt_tensor *from,
                 struct ckpt_err *err)
{
    char a[128], b[128];

    if (to->dtype != from->dtype || !ckpt_shape_equal(&to->shape, &from->shape))
        return ckpt_fail(
            err, CKPT_EMISMATCH, "tensor %s: the source has %s %s, the sink wants %s %s",
            to->name, ckpt_dtype_name(from->dtype), ckpt_shape_text(a, sizeof a, &from->shape),
            ckpt_dtype_name(to->dtype), ckpt_shape_text(b, sizeof b, &to->shape));
    if (ckpt_dtype_size(to->dtype) == 0 && to->numel > 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s elements are not copied",
                         to->name, ckpt_dtype_name(to->dtype));
    return 0;
}

/* Whether the kernel can copy the range: both the source (*from) and the sink (*to) store it
 * unchanged. */
static bool inside(struct job *j, const struct ckpt_sink_extent *to, size_t k, int64_t start,
                   int64_t count, struct ckpt_extent *from)
{
    return !to->seen && !ckpt_out_is_direct(to->out) &&
           ckpt_source_locate(j->src, k, start, count, from);
}

/* Choose the elements of a piece: its bytes' worth, or more where the kernel copies. */
static void size_pieces(struct job *j, struct part *p, const struct ckpt_tensor *t)
{
    size_t width = ckpt_dtype_size(t->dtype);
    struct ckpt_sink_extent to;
    struct ckpt_extent from;

    p->step = (int64_t)(j->piece / width);
    if (!ckpt_sink_locate(j->sink, p->sink, 0, t->numel, &to))
        return;
    p->out = to.out;
    if (j->piece < COPY_CHUNK && inside(j, &to, p->source, 0, t->numel, &from))
        p->step = (int64_t)(COPY_CHUNK / width);
    else if (ckpt_out_is_direct(to.out) && to.offset % width == 0 && j->piece % CKPT_OUT_PAGE == 0)
        p->less = (int64_t)(to.offset % CKPT_OUT_PAGE / width);
}

/* Pieces are counted, not listed: a tensor may claim any size. */
static int cut(struct job *j, struct ckpt_err *err)
{
    const struct ckpt_tensors *list = ckpt_sink_tensors(j->sink);
    int rc;

    j->part = ckpt_alloc(list->n, sizeof *j->part);
    if (!j->part)
        return ckpt_nomem(err, list->n * sizeof *j->part);
    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];
        struct part *p = &j->part[j->n_part];
        size_t k = ckpt_source_find(j->src, t->name);

        if (k == SIZE_MAX)
            return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: the source has none", t->name);
        if ((rc = match(t, ckpt_source_tensor(j->src, k), err)) != 0)
            return rc;
        if (t->numel == 0)
            continue;
        if (!ckpt_add(&j->total, j->total, ckpt_tensor_bytes(t)))
            return ckpt_fail(err, CKPT_ELIMIT, "tensor %s: the bytes of all tensors overflow",
                             t->name);
        *p = (struct part){.sink = i, .source = k, .first = j->n_piece};
        size_pieces(j, p, t);
        /* Cannot overflow: every piece has at least one byte, and the byte count fits. */
        j->n_piece += (size_t)((t->numel - 1) / p->step + 1 +
                               ((t->numel - 1) % p->step >= p->step - p->less));
        j->n_part++;
    }
    return 0;
}

/* Neighbours of one file; a stream is one lane, in order. */
static bool same_lane(const struct job *j, size_t k)
{
    return k > 0 && (ckpt_sink_is_stream(j->sink) || j->part[k].out == j->part[k - 1].out);
}

/* Make lanes, and open one for every two workers: a worker also reads and computes. */
static int make_lanes(struct job *j, size_t workers, struct ckpt_err *err)
{
    size_t n = 0, most = workers / 2 < 1 ? 1 : workers / 2 < OPEN_LANES ? workers / 2 : OPEN_LANES;

    for (size_t k = 0; k < j->n_part; k++)
        n += !same_lane(j, k);
    j->lane = ckpt_alloc(n, sizeof *j->lane);
    j->open = ckpt_alloc(most, sizeof *j->open);
    if (!j->lane || !j->open)
        return ckpt_nomem(err, n * sizeof *j->lane);
    for (size_t k = 0; k < j->n_part; k++) {
        if (!same_lane(j, k))
            j->lane[j->n_lane++].next = j->part[k].first;
        j->lane[j->n_lane - 1].end = k + 1 < j->n_part ? j->part[k + 1].first : j->n_piece;
    }
    while (j->n_open < most && j->next_lane < j->n_lane)
        j->open[j->n_open++] = j->next_lane++;
    return 0;
}

/* The next piece; called once for each. */
static size_t take_piece(struct job *j)
{
    struct lane *l;
    size_t at, piece;

    pthread_mutex_lock(&j->lock);
    at = j->turn++ % j->n_open;
    l = &j->lane[j->open[at]];
    piece = l->next++;
    if (l->next == l->end)
        j->open[at] = j->next_lane < j->n_lane ? j->next_lane++ : j->open[--j->n_open];
    pthread_mutex_unlock(&j->lock);
    return piece;
}

static const struct part *part_of(const struct job *j, size_t piece)
{
    size_t lo = 0, hi = j->n_part;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (j->part[mid].first <= piece)
            lo = mid;
        else
            hi = mid;
    }
    return &j->part[lo];
}

/* Count bytes, and report progress now and then. */
static void tell(struct job *j, uint64_t bytes)
{
    struct timespec now;

    pthread_mutex_lock(&j->lock);
    j->done += bytes;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (j->opts->progress && (j->done == j->total ||
                              (now.tv_sec - j->told.tv_sec) * 1000000000 + now.tv_nsec -
                                      j->told.tv_nsec >= TICK_NS)) {
        j->told = now;
        j->opts->progress(j->opts->progress_ctx, j->done, j->total);
    }
    pthread_mutex_unlock(&j->lock);
}

/*
 * Wait until all pieces before this one are written.  Pieces are begun in order, so some worker
 * holds the piece waited for, and its failure wakes all.
 */
static int wait_until_next(struct job *j, size_t piece, struct ckpt_err *err)
{
    bool failed;

    pthread_mutex_lock(&j->lock);
    while (j->next_piece != piece && j->failed == 0)
        pthread_cond_wait(&j->next_changed, &j->lock);
    failed = j->failed != 0;
    pthread_mutex_unlock(&j->lock);
    return failed ? ckpt_fail(err, CKPT_ESTOPPED, "another piece failed") : 0;
}

/* Let the next piece be written; record the first failure. */
static void end_piece(struct job *j, int rc, const struct ckpt_err *err)
{
    pthread_mutex_lock(&j->lock);
    j->next_piece++;
    if (rc && j->failed == 0) {
        j->failed = rc;
        j->err = *err;
    }
    pthread_cond_broadcast(&j->next_changed);
    pthread_mutex_unlock(&j->lock);
}

/* Copy elements [start, start + count) inside the kernel; false when that is impossible. */
static bool copy_inside(struct job *j, const struct part *p, int64_t start, int64_t count,
                        unsigned char *buffer, int *rc, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(j->src, p->source);
    struct ckpt_sink_extent to;
    struct ckpt_extent from;

    if (!ckpt_sink_locate(j->sink, p->sink, start, count, &to) ||
        !inside(j, &to, p->source, start, count, &from))
        return false;
    *rc = ckpt_out_copy(to.out, to.offset, from.file, from.offset,
                        (uint64_t)count * ckpt_dtype_size(t->dtype), buffer, j->chunk, err);
    if (*rc)
        ckpt_err_in(err, "tensor %s", t->name);
    else
        ckpt_sink_wrote(j->sink, p->sink, count);
    return true;
}

/* Offset in the buffer of a range: its offset within a page of the output file. */
static size_t skip_of(struct job *j, const struct part *p, int64_t start, int64_t count)
{
    struct ckpt_sink_extent to;

    return ckpt_sink_locate(j->sink, p->sink, start, count, &to) ? to.offset % CKPT_OUT_PAGE : 0;
}

/* Move elements [start, start + count), one buffer at a time. */
static int move_through(struct job *j, size_t piece, const struct part *p, int64_t start,
                        int64_t count, unsigned char *buffer, struct ckpt_err *err)
{
    int64_t most = (int64_t)(j->chunk / ckpt_dtype_size(ckpt_source_tensor(j->src,
                                                                           p->source)->dtype));
    int rc = 0;

    for (int64_t at = start, n; rc == 0 && at < start + count; at += n) {
        unsigned char *to = buffer;

        n = at == 0 ? most - p->less : most;        /* pages stay whole, as those of pieces do */
        n = start + count - at < n ? start + count - at : n;
        to += skip_of(j, p, at, n);
        rc = ckpt_source_read(j->src, p->source, at, n, to, err);
        if (rc == 0 && ckpt_sink_is_stream(j->sink))
            rc = wait_until_next(j, piece, err);
        if (rc == 0)
            rc = ckpt_sink_write(j->sink, p->sink, at, n, to, err);
    }
    return rc;
}

static int move_piece(struct job *j, size_t piece, unsigned char *buffer, struct ckpt_err *err)
{
    const struct part *p = part_of(j, piece);
    const struct ckpt_tensor *t = ckpt_source_tensor(j->src, p->source);
    size_t width = ckpt_dtype_size(t->dtype);
    bool first = piece == p->first;
    int64_t start = first ? 0 : (int64_t)((piece - p->first) * (size_t)p->step - (size_t)p->less);
    int64_t count = first ? p->step - p->less : p->step;
    int rc = 0;

    count = t->numel - start < count ? t->numel - start : count;
    if (j->opts->stop && *j->opts->stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "stopped before all tensors were written");
    if (!copy_inside(j, p, start, count, buffer, &rc, err))
        rc = move_through(j, piece, p, start, count, buffer, err);
    if (rc == 0)
        tell(j, (uint64_t)count * width);
    return rc;
}

static int work(void *ctx, size_t ticket, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    size_t piece = take_piece(j);
    int rc;

    (void)ticket;
    guard_proofs_use(j->proofs);
    rc = j->proofs && guard_proofs_failed(j->proofs)
             ? ckpt_fail(err, CKPT_ESTOPPED, "a checksum was wrong")
             : move_piece(j, piece, j->buffer[worker], err);
    guard_proofs_use(NULL);
    end_piece(j, rc, err);
    return rc;
}

static int make_buffers(struct job *j, size_t workers, struct ckpt_err *err)
{
    j->buffer = ckpt_alloc(workers, sizeof *j->buffer);
    if (!j->buffer)
        return ckpt_nomem(err, workers * sizeof *j->buffer);
    for (size_t w = 0; w < workers; w++)
        if (!(j->buffer[w] = ckpt_alloc_buffer(j->chunk + CKPT_OUT_PAGE)))
            return ckpt_nomem(err, j->chunk + CKPT_OUT_PAGE);
    return 0;
}

static size_t default_chunk(size_t workers)
{
    size_t share = ALL_BUFFERS / workers / CKPT_OUT_PAGE * CKPT_OUT_PAGE;

    return share < LEAST_BUFFER ? LEAST_BUFFER : share < PIECE ? share : PIECE;
}

uint64_t ckpt_copy_memory(size_t workers, size_t n)
{
    workers = workers ? workers : ckpt_pool_default(MOST_WORKERS);
    return workers * (uint64_t)(default_chunk(workers) + CKPT_OUT_PAGE) +
           n * (uint64_t)(sizeof(struct part) + sizeof(struct lane));
}

int ckpt_copy(struct ckpt_sink *sink, struct ckpt_source *src,
              const struct ckpt_copy_opts *opts, struct ckpt_err *err)
{
    struct ckpt_copy_opts own;
    struct job j = {.sink = sink, .src = src, .opts = &own, .lock = PTHREAD_MUTEX_INITIALIZER,
                    .next_changed = PTHREAD_COND_INITIALIZER};
    struct ckpt_err wrong = {0};
    size_t workers;
    int proved, rc = ckpt_opts_read(&own, sizeof own, opts, err);

    workers = own.workers ? own.workers : ckpt_pool_default(MOST_WORKERS);
    j.chunk = own.chunk_bytes ? own.chunk_bytes : default_chunk(workers);
    j.chunk = j.chunk < LEAST_CHUNK ? LEAST_CHUNK : j.chunk > MOST_CHUNK ? MOST_CHUNK : j.chunk;
    /* What a stream's workers hold ready is a piece each. */
    j.piece = own.chunk_bytes || ckpt_sink_is_stream(sink) || j.chunk > PIECE ? j.chunk : PIECE;
    if (rc == 0)
        rc = cut(&j, err);
    if (workers > j.n_piece)
        workers = j.n_piece ? j.n_piece : 1;
    /* Bytes sent to a stream cannot be taken back, so its workers verify before they write. */
    if (rc == 0 && !ckpt_sink_is_stream(sink))
        rc = guard_proofs_new(&j.proofs, workers < 2 ? workers : 2, err);
    if (rc == 0)
        rc = make_lanes(&j, workers, err);
    if (rc == 0)
        rc = make_buffers(&j, workers, err);
    if (rc == 0)
        rc = ckpt_pool_run(workers, j.n_piece, work, &j, err);
    if (j.failed) {            /* the first failure, not that of a worker that only waited for it */
        *err = j.err;
        rc = j.failed;
    }
    proved = guard_proofs_end(j.proofs, &wrong);
    if (proved) {                       /* the wrong checksum is why the others stopped */
        *err = wrong;
        rc = proved;
    }
    for (size_t w = 0; j.buffer && w < workers; w++)
        ckpt_free(j.buffer[w]);
    ckpt_free(j.buffer);
    ckpt_free(j.open);
    ckpt_free(j.lane);
    ckpt_free(j.part);
    pthread_cond_destroy(&j.next_changed);
    pthread_mutex_destroy(&j.lock);
    return rc;
}
