/* torch/sink - see torch/sink.h. */
#include "formats/torch/sink.h"

#include <string.h>

#include "formats/torch/out.h"
#include "libckpt/base/buf.h"

struct sink {
    struct torch_writer       *w;
    const struct ckpt_tensors *tensors;         /* kept by the sink above us */
    size_t                    *storage;         /* of each tensor */
};

/* The tensor that owns the storage of tensor i: tied ones share it, as torch saves them. */
static size_t owner(const struct ckpt_tensors *list, size_t i)
{
    const struct ckpt_tensor *t = &list->item[i];
    size_t k = t->alias_of;

    return k < i && list->item[k].dtype == t->dtype &&
                   ckpt_shape_equal(&list->item[k].shape, &t->shape)
               ? k : i;
}

static int sink_write(void *self, size_t i, int64_t start, int64_t count, const void *src,
                      struct ckpt_err *err)
{
    const struct sink *s = self;

    return owner(s->tensors, i) == i ? torch_writer_put(s->w, s->storage[i], start, count, src, err)
                                       : 0;
}

static void free_sink(struct sink *s)
{
    if (s)
        ckpt_free(s->storage);
    ckpt_free(s);
}

static int sink_commit(void *self, struct ckpt_err *err)
{
    struct torch_writer *w = ((struct sink *)self)->w;

    free_sink(self);
    return torch_writer_commit(w, err);
}

static void sink_abort(void *self)
{
    torch_writer_abort(((struct sink *)self)->w);
    free_sink(self);
}

/* Checksums need the bytes to pass through write. */
static bool sink_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_sink_extent *out)
{
    const struct sink *s = self;

    (void)count;
    if (owner(s->tensors, i) != i)
        return false;
    torch_writer_place(s->w, s->storage[i], start, &out->out, &out->offset);
    out->seen = true;
    return true;
}

static const struct ckpt_sink_ops sink_ops = {
    .format = "torch", .write = sink_write, .locate = sink_locate, .commit = sink_commit,
    .abort = sink_abort,
};

/* The archive's inner folder: the file's name up to its last dot, as in torch.save. */
static void name_top(char *top, size_t size, const char *path)
{
    const char *base = strrchr(path, '/'), *dot;
    size_t n;

    base = base ? base + 1 : path;
    dot = strrchr(base, '.');
    n = dot && dot > base ? (size_t)(dot - base) : strlen(base);
    if (n == 0 || n >= size || base[0] == '.' || memchr(base, '\\', n) ||
        !ckpt_utf8_valid(base, n)) {
        base = "archive";
        n = strlen(base);
    }
    memcpy(top, base, n);
    top[n] = '\0';
}

/* OrderedDict of name -> tensor, and the storages, *n of them. */
static int fill(struct ckpt_arena *a, struct value *root, struct torch_storage *storage,
                size_t *n, struct sink *s, struct ckpt_err *err)
{
    if (!root || !storage)
        return ckpt_nomem(err, s->tensors->n * sizeof *storage);
    for (size_t i = 0; i < s->tensors->n; i++) {
        const struct ckpt_tensor *t = &s->tensors->item[i];
        size_t own = owner(s->tensors, i);

        s->storage[i] = own == i ? *n : s->storage[own];
        if (own == i)
            storage[(*n)++] = (struct torch_storage){.dtype = t->dtype, .numel = t->numel};
        if (!ckpt_dtype_torch_name(t->dtype) || !ckpt_dtype_size(t->dtype) ||
            (t->dtype >= CKPT_QI8 && t->dtype <= CKPT_QI32))    /* their scales are unknown */
            return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s is not written to torch "
                             "archives", t->name, ckpt_dtype_name(t->dtype));
        if (value_set_str(a, root, t->name,
                          value_tensor_whole(a, t->dtype, &t->shape, s->storage[i])))
            return ckpt_nomem(err, (size_t)a->used);
    }
    return 0;
}

int torch_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                 const struct ckpt_create_opts *opts, struct ckpt_err *err)
{
    struct ckpt_arena a = {0};
    struct torch_storage *storage = ckpt_arena_alloc(&a, tensors->n, sizeof *storage);
    struct value *root = value_dict(&a, true);
    struct sink *s = ckpt_alloc(1, sizeof *s);
    bool dry = opts->flags & CKPT_DRY_RUN;
    struct ckpt_out *file;
    char top[200];
    size_t n = 0;
    int rc = 0;

    *out = NULL;
    name_top(top, sizeof top, path);
    if (s) {
        s->tensors = tensors;
        s->storage = ckpt_alloc(tensors->n, sizeof *s->storage);
    }
    if (!s || !s->storage)
        rc = ckpt_nomem(err, tensors->n * sizeof *s->storage);
    if (rc == 0 && opts->stream_fd > 0)
        rc = ckpt_fail(err, CKPT_EUNSUPPORTED, "a torch archive cannot be streamed: its directory "
                       "needs every checksum");
    if (rc == 0)
        rc = fill(&a, root, storage, &n, s, err);
    if (rc == 0)
        rc = dry ? ckpt_out_ready(path, opts->flags, err)
                 : ckpt_out_create(&file, path, opts->flags, err);
    if (rc == 0 && !dry)
        rc = torch_writer_new(&s->w, file, top, root, storage, n, opts->record, err);
    ckpt_arena_release(&a);
    if (rc || dry) {
        free_sink(s);
        return rc;
    }
    return ckpt_sink_new(out, &sink_ops, s, tensors, false, err);
}
