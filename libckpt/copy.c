/* copy - see copy.h. */
#include "libckpt/copy.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "libckpt/pool.h"

#define DEFAULT_CHUNK ((size_t)4 << 20)
#define TICK_NS       200000000 /* five calls of progress a second */
#define COPY_CHUNK    ((uint64_t)64 << 20)  /* a range that stays inside the kernel */

/* A range of one tensor: what a worker takes at a time. */
struct piece {
    size_t  sink, source;       /* the tensor's index on either side */
    int64_t start, count;
};

struct job {
    struct ckpt_sink            *sink;
    struct ckpt_source          *src;
    const struct ckpt_copy_opts *opts;
    size_t                       chunk;
    struct piece                *piece;
    size_t                       n_piece, cap;
    unsigned char              **buffer;    /* [workers][chunk] */
    pthread_mutex_t              lock;
    pthread_cond_t               turn_changed;
    size_t                       turn;      /* stream: the piece to be written next */
    bool                         failed;    /* stream: nobody's turn comes any more */
    uint64_t                     done, total;
    struct timespec              told;
};

static int add_piece(struct job *j, struct piece p, struct ckpt_err *err)
{
    if (j->n_piece == j->cap) {
        size_t cap = j->cap ? 2 * j->cap : 256;
        void *grown = ckpt_grow(j->piece, cap, sizeof *j->piece);

        if (!grown)
            return ckpt_nomem(err, cap * sizeof *j->piece);
        j->piece = grown;
        j->cap = cap;
    }
    j->piece[j->n_piece++] = p;
    return 0;
}

static int match(const struct ckpt_tensor *to, const struct ckpt_tensor *from,
                 struct ckpt_err *err)
{
    char a[128], b[128];

    if (to->dtype != from->dtype || !ckpt_shape_equal(&to->shape, &from->shape))
        return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: the source has %s %s, the sink wants %s %s",
                         to->name, ckpt_dtype_name(from->dtype),
                         ckpt_shape_text(a, sizeof a, &from->shape), ckpt_dtype_name(to->dtype),
                         ckpt_shape_text(b, sizeof b, &to->shape));
    if (ckpt_dtype_size(to->dtype) == 0 && to->numel > 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s elements are not copied", to->name,
                         ckpt_dtype_name(to->dtype));
    return 0;
}

/* Cut every tensor into ranges; larger ones where both sides lie verbatim. */
static int cut(struct job *j, struct ckpt_err *err)
{
    const struct ckpt_tensors *list = ckpt_sink_tensors(j->sink);

    for (size_t i = 0; i < list->n; i++) {
        const struct ckpt_tensor *t = &list->item[i];
        size_t k = ckpt_source_find(j->src, t->name), width = ckpt_dtype_size(t->dtype);
        struct ckpt_place_out to;
        struct ckpt_extent from;
        int64_t step;

        if (k == SIZE_MAX)
            return ckpt_fail(err, CKPT_EMISMATCH, "tensor %s: the source has none", t->name);
        if (match(t, ckpt_source_tensor(j->src, k), err))
            return err->code;
        if (t->numel == 0)
            continue;
        step = (int64_t)(j->chunk / width);
        if (!ckpt_sink_is_stream(j->sink) && ckpt_source_locate(j->src, k, 0, t->numel, &from) &&
            ckpt_sink_locate(j->sink, i, 0, t->numel, &to))
            step = (int64_t)(COPY_CHUNK / width);
        for (int64_t at = 0; at < t->numel; at += step) {
            int64_t n = t->numel - at < step ? t->numel - at : step;

            if (add_piece(j, (struct piece){i, k, at, n}, err))
                return err->code;
            j->total += (uint64_t)n * width;
        }
    }
    return 0;
}

/* Count, and tell now and then. */
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

/* Wait until all pieces before this one are written; CKPT_ESTOPPED when none will be. */
static int wait_turn(struct job *j, size_t i, struct ckpt_err *err)
{
    bool failed;

    pthread_mutex_lock(&j->lock);
    while (j->turn != i && !j->failed)
        pthread_cond_wait(&j->turn_changed, &j->lock);
    failed = j->failed;
    pthread_mutex_unlock(&j->lock);
    return failed ? ckpt_fail(err, CKPT_ESTOPPED, "stopped") : 0;
}

static void end_turn(struct job *j, bool failed)
{
    pthread_mutex_lock(&j->lock);
    j->turn++;
    j->failed = j->failed || failed;
    pthread_cond_broadcast(&j->turn_changed);
    pthread_mutex_unlock(&j->lock);
}

static int move_piece(struct job *j, size_t i, unsigned char *buffer, struct ckpt_err *err)
{
    const struct piece *p = &j->piece[i];
    size_t width = ckpt_dtype_size(ckpt_source_tensor(j->src, p->source)->dtype);
    bool stream = ckpt_sink_is_stream(j->sink);
    struct ckpt_place_out to;
    struct ckpt_extent from;

    if (j->opts->stop && *j->opts->stop)
        return ckpt_fail(err, CKPT_ESTOPPED, "stopped before all tensors were written");
    if (!stream && ckpt_source_locate(j->src, p->source, p->start, p->count, &from) &&
        ckpt_sink_locate(j->sink, p->sink, p->start, p->count, &to)) {
        if (ckpt_out_copy(to.out, to.offset, from.file, from.offset, (uint64_t)p->count * width,
                          buffer, j->chunk, err))
            return ckpt_err_in(err, "tensor %s", ckpt_source_tensor(j->src, p->source)->name);
        ckpt_sink_wrote(j->sink, p->sink, p->count);
        return 0;
    }
    if (ckpt_source_read(j->src, p->source, p->start, p->count, buffer, err) ||
        (stream && wait_turn(j, i, err)))
        return err->code;
    return ckpt_sink_write(j->sink, p->sink, p->start, p->count, buffer, err);
}

static int work(void *ctx, size_t i, size_t worker, struct ckpt_err *err)
{
    struct job *j = ctx;
    int rc = move_piece(j, i, j->buffer[worker], err);

    if (ckpt_sink_is_stream(j->sink))
        end_turn(j, rc != 0);
    if (rc == 0)
        tell(j, (uint64_t)j->piece[i].count *
                    ckpt_dtype_size(ckpt_source_tensor(j->src, j->piece[i].source)->dtype));
    return rc;
}

int ckpt_copy(struct ckpt_sink *sink, struct ckpt_source *src, const struct ckpt_copy_opts *opts,
              struct ckpt_err *err)
{
    static const struct ckpt_copy_opts none;
    struct job j = {.sink = sink, .src = src, .opts = opts ? opts : &none,
                    .lock = PTHREAD_MUTEX_INITIALIZER,
                    .turn_changed = PTHREAD_COND_INITIALIZER};
    size_t workers = j.opts->workers ? j.opts->workers : ckpt_pool_default(8);
    int rc;

    j.chunk = j.opts->chunk_bytes ? j.opts->chunk_bytes : DEFAULT_CHUNK;
    if (j.chunk < 4096)
        j.chunk = 4096;
    rc = cut(&j, err);
    if (rc == 0 && !(j.buffer = ckpt_alloc(workers, sizeof *j.buffer)))
        rc = ckpt_nomem(err, workers * sizeof *j.buffer);
    for (size_t w = 0; rc == 0 && w < workers; w++)
        if (!(j.buffer[w] = ckpt_alloc_buffer(j.chunk)))
            rc = ckpt_nomem(err, j.chunk);
    if (rc == 0)
        rc = ckpt_pool_run(workers, j.n_piece, work, &j, err);
    for (size_t w = 0; j.buffer && w < workers; w++)
        ckpt_free(j.buffer[w]);
    ckpt_free(j.buffer);
    ckpt_free(j.piece);
    pthread_cond_destroy(&j.turn_changed);
    pthread_mutex_destroy(&j.lock);
    return rc;
}
