/* sink - see sink.h. */
#include "libckpt/sink.h"
#include "libckpt/err.h"

#include <stdatomic.h>

struct ckpt_sink {
    const struct ckpt_sink_ops *ops;
    void                       *self;
    const struct ckpt_tensors  *tensors;
    _Atomic(int64_t)           *written;    /* [n] elements of each tensor */
    bool                        stream;
    size_t                      at;         /* stream: the tensor being written */
};

int ckpt_sink_new(struct ckpt_sink **out, const struct ckpt_sink_ops *ops, void *self,
                  const struct ckpt_tensors *tensors, bool stream, struct ckpt_err *err)
{
    struct ckpt_sink *s = ckpt_alloc(1, sizeof *s);

    *out = NULL;
    if (s)
        s->written = ckpt_alloc(tensors->n, sizeof *s->written);
    if (!s || !s->written) {
        ckpt_free(s);
        ops->abort(self);
        return ckpt_nomem(err, tensors->n * sizeof *s->written);
    }
    s->ops = ops;
    s->self = self;
    s->tensors = tensors;
    s->stream = stream;
    *out = s;
    return 0;
}

const struct ckpt_tensors *ckpt_sink_tensors(const struct ckpt_sink *sink)
{
    return sink->tensors;
}

bool ckpt_sink_is_stream(const struct ckpt_sink *sink) { return sink->stream; }

static int check_range(struct ckpt_sink *sink, size_t i, int64_t start, int64_t count,
                       struct ckpt_err *err)
{
    const struct ckpt_tensor *t = i < sink->tensors->n ? &sink->tensors->item[i] : NULL;

    if (!t || start < 0 || count < 0 || start > t->numel || count > t->numel - start)
        return ckpt_fail(err, CKPT_ESTATE, "tensor %zu: elements [%lld, +%lld) have no place",
                         i, (long long)start, (long long)count);
    if (!sink->stream || count == 0)
        return 0;
    while (sink->at < i && atomic_load(&sink->written[sink->at]) ==
                               sink->tensors->item[sink->at].numel)
        sink->at++;
    if (sink->at != i || atomic_load(&sink->written[i]) != start)
        return ckpt_fail(err, CKPT_ESTATE, "tensor %s: a stream takes elements in order",
                         t->name);
    return 0;
}

int ckpt_sink_write(struct ckpt_sink *sink, size_t i, int64_t start, int64_t count,
                    const void *src, struct ckpt_err *err)
{
    int rc;

    if ((rc = check_range(sink, i, start, count, err)) != 0)
        return rc;
    if (count == 0)
        return 0;
    if (sink->ops->write(sink->self, i, start, count, src, err))
        return ckpt_err_in(err, "tensor %s", sink->tensors->item[i].name);
    atomic_fetch_add(&sink->written[i], count);
    return 0;
}

bool ckpt_sink_locate(struct ckpt_sink *sink, size_t i, int64_t start, int64_t count,
                      struct ckpt_sink_extent *out)
{
    struct ckpt_err ignored = {0};

    *out = (struct ckpt_sink_extent){0};
    return sink->ops->locate && !sink->stream && count > 0 &&
           check_range(sink, i, start, count, &ignored) == 0 &&
           sink->ops->locate(sink->self, i, start, count, out);
}

void ckpt_sink_wrote(struct ckpt_sink *sink, size_t i, int64_t count)
{
    atomic_fetch_add(&sink->written[i], count);
}

int ckpt_sink_commit(struct ckpt_sink *sink, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < sink->tensors->n; i++) {
        const struct ckpt_tensor *t = &sink->tensors->item[i];
        int64_t n = atomic_load(&sink->written[i]);

        if (n != t->numel)
            rc = ckpt_fail(err, CKPT_ESTATE, "tensor %s: %lld of %lld elements were written",
                           t->name, (long long)n, (long long)t->numel);
    }
    if (rc)
        sink->ops->abort(sink->self);
    else
        rc = sink->ops->commit(sink->self, err);
    ckpt_free(sink->written);
    ckpt_free(sink);
    return rc;
}

void ckpt_sink_abort(struct ckpt_sink *sink)
{
    if (!sink)
        return;
    sink->ops->abort(sink->self);
    ckpt_free(sink->written);
    ckpt_free(sink);
}
