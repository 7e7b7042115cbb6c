/* dir_sink - see dir_sink.h. */
#include "formats/dir_sink.h"

#include <string.h>

#include "formats/hf/side_files.h"
#include "libckpt/base/json.h"

static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    const struct dir_sink *s = self;

    return s->ops->locate && s->ops->locate(self, i, start, count, out);
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    const struct dir_sink *s = self;
    struct ckpt_sink_extent to;

    if (s->ops->write)
        return s->ops->write(self, i, start, count, src, err);
    s->ops->locate(self, i, start, count, &to);
    return ckpt_out_write_at(to.out, src, (size_t)count * ckpt_dtype_size(s->list->item[i].dtype),
                             to.offset, err);
}

/* Free s, and give its directory to the caller. */
static struct ckpt_outdir *release(struct dir_sink *s)
{
    struct ckpt_outdir *dir = s->dir;

    s->ops->release(s);
    ckpt_free(s);
    return dir;
}

static void sink_abort(void *self) { ckpt_outdir_abort(release(self)); }

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct dir_sink *s = self;
    int rc = s->ops->finish ? s->ops->finish(s, err) : 0;

    if (rc == 0 && s->record)
        rc = ckpt_outdir_put(s->dir, CKPT_RECORD_FILE, s->record, strlen(s->record), err);
    if (rc == 0 && s->ops->put_index)
        rc = s->ops->put_index(s, err);
    if (rc == 0)
        return ckpt_outdir_commit(release(s), err);
    sink_abort(s);
    return rc;
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "directory", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

int dir_sink_copy(void *self, const struct ckpt_extra *extra, struct ckpt_err *err)
{
    return side_file_put(((struct dir_sink *)self)->dir, extra, err);
}

int dir_sink_put_json(struct ckpt_outdir *dir, const char *name, const json_t *value,
                      const char *end, struct ckpt_err *err)
{
    struct ckpt_buf b;
    int rc;

    ckpt_buf_init(&b, (size_t)1 << 30);
    rc = ckpt_json_write(&b, value, 2, true, err);
    ckpt_buf_put_str(&b, end);
    if (rc == 0 && !ckpt_buf_ok(&b))
        rc = ckpt_nomem(err, b.len);
    if (rc == 0)
        rc = ckpt_outdir_put(dir, name, b.data, b.len, err);
    ckpt_buf_release(&b);
    return rc;
}

int dir_sink_create(struct ckpt_sink **out, const struct dir_sink_ops *ops, const char *path,
                    const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                    struct ckpt_err *err)
{
    int (*put_extra)(void *, const struct ckpt_extra *, struct ckpt_err *) =
        ops->put_extra ? ops->put_extra : dir_sink_copy;
    bool dry = opts->flags & CKPT_DRY_RUN;
    struct dir_sink *s;
    int rc;

    *out = NULL;
    if (opts->stream_fd > 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s is not written to a stream", ops->title);
    s = ckpt_alloc(1, ops->size);
    if (!s)
        return ckpt_nomem(err, ops->size);
    *s = (struct dir_sink){.ops = ops, .list = tensors, .record = opts->record};
    rc = ops->plan(s, opts, err);
    if (rc == 0)
        rc = dry ? ckpt_outdir_ready(path, err) : ckpt_outdir_create(&s->dir, path, err);
    if (rc == 0 && !dry)
        rc = ops->begin(s, opts, err);
    for (size_t i = 0; rc == 0 && !dry && i < opts->n_extra; i++)
        rc = put_extra(s, &opts->extra[i], err);
    if (rc == 0 && !dry)
        return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
    sink_abort(s);
    return rc;
}
