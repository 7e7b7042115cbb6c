/* dcp/out - see dcp/out.h. */
#include "formats/dcp/out.h"

#include <pthread.h>
#include <string.h>

#include "formats/dcp/state.h"
#include "formats/dir_sink.h"
#include "libckpt/base/crc32.h"
#include "libckpt/split.h"

#define MAX_PICKLE ((size_t)1 << 30)

struct sink {
    struct dir_sink   base;
    struct dcp_index  index;
    size_t           *item_of;      /* [list->n] */
    struct ckpt_out **file;         /* [n_file] */
    uint64_t         *size;         /* [n_file] length in bytes */
    size_t            n_file;
    float             step;         /* value of items without a tensor */
    pthread_mutex_t   lock;         /* guards the checksums */
};

/* Offset of an item's element in its file. */
static uint64_t payload_of(const struct dcp_out_item *it, int64_t start)
{
    return it->blob.base + it->blob.payload + (uint64_t)start * ckpt_dtype_size(it->dtype);
}

/* Elements of an item, from any thread. */
static int put(struct sink *s, struct dcp_out_item *it, int64_t start, int64_t count,
               const void *src, struct ckpt_err *err)
{
    size_t width = ckpt_dtype_size(it->dtype), n = (size_t)count * width;
    uint32_t crc = ckpt_crc32(0, src, n);
    int rc = ckpt_out_write_at(s->file[it->file], src, n, payload_of(it, start), err);

    if (rc)
        return rc;
    pthread_mutex_lock(&s->lock);
    rc = crc_join_add(&it->blob.crc, (uint64_t)start * width, n, crc, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    struct sink *s = self;

    return put(s, &s->index.item[s->item_of[i]], start, count, src, err);
}

static void sink_release(void *self)
{
    struct sink *s = self;

    for (size_t i = 0; s->file && i < s->n_file; i++)
        ckpt_out_abort(s->file[i]);
    dcp_index_release(&s->index);
    pthread_mutex_destroy(&s->lock);
    ckpt_free(s->file);
    ckpt_free(s->size);
    ckpt_free(s->item_of);
}

static int sink_put_index(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, MAX_PICKLE);
    rc = dcp_index_pickle(&b, &s->index, err);
    if (rc == 0)
        rc = ckpt_outdir_put(s->base.dir, ".metadata", b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

static int sink_finish(void *self, struct ckpt_err *err)
{
    struct sink *s = self;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->index.n; i++) {
        const struct dcp_out_item *it = &s->index.item[i];

        if (dcp_blob_finish(s->file[it->file], &it->blob, err))
            rc = ckpt_err_in(err, "%s", it->fqn);
    }
    for (size_t i = 0; rc == 0 && i < s->n_file; i++) {
        rc = ckpt_out_commit(s->file[i], err);
        s->file[i] = NULL;
    }
    return rc;
}

/* Checksums need the bytes to pass through write. */
static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    const struct sink *s = self;
    const struct dcp_out_item *it = &s->index.item[s->item_of[i]];

    (void)count;
    *out = (struct ckpt_sink_extent){s->file[it->file], payload_of(it, start), true};
    return true;
}

/* Assign each item to a file: tensors by size, everything else in the first. */
static int assign_files(struct sink *s, uint64_t max_bytes, struct ckpt_err *err)
{
    size_t *shard_of = ckpt_alloc(s->base.list->n, sizeof *shard_of);

    if (!shard_of)
        return ckpt_nomem(err, s->base.list->n * sizeof *shard_of);
    s->n_file = ckpt_split(shard_of, s->base.list,
                           max_bytes ? max_bytes : CKPT_DEFAULT_SHARD_BYTES);
    for (size_t i = 0; i < s->base.list->n; i++)
        s->index.item[s->item_of[i]].file = shard_of[i];
    ckpt_free(shard_of);
    s->file = ckpt_alloc(s->n_file, sizeof *s->file);
    s->size = ckpt_alloc(s->n_file, sizeof *s->size);
    return s->file && s->size ? 0 : ckpt_nomem(err, s->n_file * sizeof *s->file);
}

/* Place each item, and compute the lengths of files. */
static int lay_out(struct sink *s, struct ckpt_buf *b, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < s->index.n; i++)
        rc = dcp_index_place(&s->index.item[i], &s->size[s->index.item[i].file], b, err);
    return rc;
}

static int open_files(struct sink *s, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < s->n_file; i++) {
        char name[64];

        dcp_index_file_name(name, 0, i);
        if ((rc = ckpt_outdir_file(&s->file[i], s->base.dir, name, err)) != 0 ||
            (rc = ckpt_out_reserve(s->file[i], s->size[i], err)) != 0)
            return rc;
    }
    return 0;
}

static bool is_step(const struct sink *s, size_t item)
{
    for (size_t lo = 0, hi = s->base.list->n; lo < hi;) {    /* item_of rises */
        size_t mid = lo + (hi - lo) / 2;

        if (s->item_of[mid] == item)
            return false;
        if (s->item_of[mid] < item)
            lo = mid + 1;
        else
            hi = mid;
    }
    return !s->index.item[item].value;
}

/* Write headers of all items, and the bytes of those without a tensor. */
static int begin_items(struct sink *s, struct ckpt_buf *b, struct ckpt_err *err)
{
    int rc;

    for (size_t i = 0; i < s->index.n; i++) {
        struct dcp_out_item *it = &s->index.item[i];

        if ((rc = dcp_index_blob_pickle(b, it, err)) != 0 ||
            (rc = dcp_blob_begin(s->file[it->file], &it->blob, b, err)) != 0 ||
            (is_step(s, i) && (rc = put(s, it, 0, 1, &s->step, err)) != 0))
            return rc;
    }
    return 0;
}

static int sink_plan(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_buf b;
    int rc;

    pthread_mutex_init(&s->lock, NULL);
    ckpt_buf_init(&b, MAX_PICKLE);
    s->item_of = ckpt_alloc(s->base.list->n, sizeof *s->item_of);
    rc = s->item_of ? dcp_state_fill(&s->index, s->item_of, s->base.list, opts->info, &s->step,
                                     err)
                    : ckpt_nomem(err, s->base.list->n * sizeof *s->item_of);
    if (rc == 0)
        rc = assign_files(s, opts->max_shard_bytes, err);
    if (rc == 0)
        rc = lay_out(s, &b, err);
    ckpt_buf_release(&b);
    return rc;
}

static int sink_begin(void *self, const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct sink *s = self;
    struct ckpt_buf b;
    int rc = open_files(s, err);

    (void)opts;
    ckpt_buf_init(&b, MAX_PICKLE);
    if (rc == 0)
        rc = begin_items(s, &b, err);
    ckpt_buf_release(&b);
    return rc;
}

static const struct dir_sink_ops dir_ops = {
    .title = "a distributed checkpoint", .size = sizeof(struct sink), .plan = sink_plan,
    .begin = sink_begin, .write = sink_write, .locate = sink_locate, .finish = sink_finish,
    .put_index = sink_put_index, .release = sink_release,
};

int dcp_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
               const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    return dir_sink_create(out, &dir_ops, path, tensors, opts, err);
}
