/*
 * verify - read the output back and compare; see parts.h.
 *
 * Both sides are cut into the same pieces, which workers take in order: the source's views compute
 * each piece anew while others are compared.
 */
#include "tools/merge/parts.h"

#include <pthread.h>
#include <string.h>

#include "formats/gguf/types.h"
#include "libckpt/base/pool.h"
#include "tools/progress.h"

#define PIECE_BYTES ((size_t)512 << 10) /* whole blocks of q8_0, 32 values each */
#define WORKERS     64                  /* at most, where --jobs is not given */

struct verify {
    struct ckpt_source *src, *back;
    const char         *output;
    size_t             *twin;           /* [n]: index in back of each tensor of src */
    size_t             *first;          /* [n + 1]: number of its first piece; the last: of all */
    size_t              n;
    unsigned char     **buffer;         /* [workers][2 * PIECE_BYTES] */
    pthread_mutex_t     lock;           /* of done */
    uint64_t            done, total;    /* bytes */
    struct progress    *progress;
};

static int64_t step_of(const struct ckpt_tensor *t)
{
    size_t width = ckpt_dtype_size(t->dtype);

    return (int64_t)(PIECE_BYTES / (width ? width : 1));
}

/* Find each tensor in the output, and count pieces. */
static int cut(struct verify *v, struct ckpt_err *err)
{
    v->twin = ckpt_alloc(v->n, sizeof *v->twin);
    v->first = ckpt_alloc(v->n + 1, sizeof *v->first);
    if (!v->twin || !v->first)
        return ckpt_nomem(err, (v->n + 1) * sizeof *v->first);
    for (size_t i = 0; i < v->n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(v->src, i);
        int64_t step = step_of(t);

        v->twin[i] = ckpt_source_find(v->back, t->name);
        if (v->twin[i] == SIZE_MAX)
            return ckpt_fail_as(err, CKPT_EIO, "digest", "%s: %s is not there after writing",
                                v->output, t->name);
        v->first[i + 1] = v->first[i] + (size_t)(t->numel / step + (t->numel % step != 0));
        v->total += ckpt_tensor_bytes(t);
    }
    return 0;
}

/* The tensor of a piece: the last one whose first piece is not behind it. */
static size_t tensor_of(const struct verify *v, size_t piece)
{
    size_t lo = 0, hi = v->n;

    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;

        if (v->first[mid] <= piece)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void tell(struct verify *v, uint64_t bytes)
{
    pthread_mutex_lock(&v->lock);
    v->done += bytes;
    progress_tick(v->progress, v->done, v->total);
    pthread_mutex_unlock(&v->lock);
}

static int compare(void *ctx, size_t piece, size_t worker, struct ckpt_err *err)
{
    struct verify *v = ctx;
    size_t i = tensor_of(v, piece);
    const struct ckpt_tensor *t = ckpt_source_tensor(v->src, i);
    unsigned char *a = v->buffer[worker], *b = a + PIECE_BYTES;
    int64_t step = step_of(t), at = (int64_t)(piece - v->first[i]) * step;
    int64_t n = t->numel - at < step ? t->numel - at : step;
    size_t bytes = (size_t)n * ckpt_dtype_size(t->dtype);
    int rc = cli_stop ? cli_stopped(err) : ckpt_source_read(v->src, i, at, n, a, err);

    if (rc == 0)
        rc = ckpt_source_read(v->back, v->twin[i], at, n, b, err);
    if (rc == 0 && t->stored && strcmp(t->stored, "Q8_0") == 0)
        gguf_q8_0_round((float *)(void *)a, (size_t)n);
    if (rc == 0 && memcmp(a, b, bytes) != 0)
        rc = ckpt_fail_as(err, CKPT_EIO, "digest", "%s: %s reads back other than it was written",
                          v->output, t->name);
    if (rc == 0)
        tell(v, bytes);
    return rc;
}

static int compare_all(struct verify *v, size_t workers, struct ckpt_err *err)
{
    size_t n = v->first[v->n];
    int rc = 0;

    workers = workers < n ? workers : n;
    v->buffer = ckpt_alloc(workers, sizeof *v->buffer);
    if (!v->buffer)
        return ckpt_nomem(err, workers * sizeof *v->buffer);
    for (size_t w = 0; rc == 0 && w < workers; w++)
        if (!(v->buffer[w] = ckpt_alloc_buffer(2 * PIECE_BYTES)))
            rc = ckpt_nomem(err, 2 * PIECE_BYTES);
    if (rc == 0)
        rc = ckpt_pool_run(workers, n, compare, v, err);
    for (size_t w = 0; w < workers; w++)
        ckpt_free(v->buffer[w]);
    ckpt_free(v->buffer);
    return rc;
}

int merge_verify(struct ckpt_source *src, const char *output, bool optimizer,
                 const struct cli *cli, struct ckpt_err *err)
{
    struct verify v = {.src = src, .output = output, .n = ckpt_source_count(src),
                       .lock = PTHREAD_MUTEX_INITIALIZER};
    struct ckpt_open_opts opts = {.optimizer = optimizer, .spool = cli_spool()};
    size_t workers = cli->jobs ? (size_t)cli->jobs : ckpt_pool_default(WORKERS);
    int rc = ckpt_open(&v.back, output, &opts, err);

    if (rc == 0)
        rc = cut(&v, err);
    v.progress = progress_new(cli, "verify", true);
    if (rc == 0)
        rc = compare_all(&v, workers, err);
    progress_end(v.progress);
    ckpt_source_close(v.back);
    ckpt_free(v.twin);
    ckpt_free(v.first);
    pthread_mutex_destroy(&v.lock);
    return rc;
}
