/* torch_sink - see torch_sink.h. */
#include "formats/weights/torch_sink.h"

#include <string.h>

#include "formats/weights/torch_out.h"

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    return torch_writer_put(self, i, start, count, src, err);
}

static int sink_commit(void *self, struct ckpt_err *err) { return torch_writer_commit(self, err); }
static void sink_abort(void *self) { torch_writer_abort(self); }

/* Checksums are made of what passes, so nothing is copied past us: no locate. */
static const struct ckpt_sink_ops sink_ops = {
    .format = "torch", .write = sink_write, .commit = sink_commit, .abort = sink_abort,
};

static struct value *tensor_value(struct ckpt_arena *a, const struct ckpt_tensor *t, size_t i)
{
    struct value_tensor v = {.dtype = t->dtype, .shape = t->shape, .storage = i};
    int64_t stride = 1;

    for (int d = t->shape.rank; d-- > 0;) {
        v.stride[d] = stride;
        stride *= t->shape.dim[d] ? t->shape.dim[d] : 1;
    }
    return value_tensor_new(a, &v);
}

int torch_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                 const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct torch_storage *storage = ckpt_arena_alloc(&a, tensors->n, sizeof *storage);
    struct value *root = value_dict(&a, true);
    struct torch_writer *w = NULL;
    struct ckpt_out *file;
    int rc = storage && root ? 0 : ckpt_nomem(err, tensors->n * sizeof *storage);

    *out = NULL;
    if (rc == 0 && opts->stream_fd >= 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a torch archive cannot be streamed: its directory "
                       "needs every checksum");
    for (size_t i = 0; rc == 0 && i < tensors->n; i++) {
        const struct ckpt_tensor *t = &tensors->item[i];

        storage[i] = (struct torch_storage){.dtype = t->dtype, .numel = t->numel};
        if (!ckpt_dtype_torch_name(t->dtype))
            rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: torch has no %s", t->name,
                           ckpt_dtype_name(t->dtype));
        else if (value_set_str(&a, root, t->name, tensor_value(&a, t, i)))
            rc = ckpt_nomem(err, (size_t)a.used);
    }
    if (rc == 0)
        rc = ckpt_out_create(&file, path, opts->flags, err);
    if (rc == 0)
        rc = torch_writer_new(&w, file, "archive", root, storage, tensors->n, err);
    ckpt_arena_release(&a);
    return rc ? rc : ckpt_sink_new(out, &sink_ops, w, tensors, false, err);
}
