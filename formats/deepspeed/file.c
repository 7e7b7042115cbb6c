/* deepspeed/file - see deepspeed/file.h. */
#include "formats/deepspeed/file.h"

#include "formats/container/value_copy.h"
#include "libckpt/convert.h"

#define CHUNK   65536           /* bytes moved at once */
#define ROUNDED 8192            /* elements rounded at once */

/* A tensor of another archive, and the contiguous storage that holds it here. */
struct ds_copied {
    size_t                      storage;
    const struct torch_archive *from;
    const struct value_tensor  *t;
};

/* Remember the code of a call that returns a value. */
static int note(struct ds_file *file, int rc)
{
    if (file->rc == 0)
        file->rc = rc;
    return rc;
}

int ds_file_check(const struct ds_file *file, bool failed, struct ckpt_err *err)
{
    if (!failed || file->rc)
        return failed ? file->rc : 0;
    return ckpt_nomem(err, (size_t)file->arena.used);
}

size_t ds_file_storage(struct ds_file *file, enum ckpt_dtype dtype, int64_t numel,
                       struct ckpt_err *err)
{
    if (note(file, ckpt_reserve(&file->storage, file->n, &file->cap, sizeof *file->storage, err)))
        return SIZE_MAX;
    file->storage[file->n] = (struct torch_storage){.dtype = dtype, .numel = numel};
    return file->n++;
}

struct value *ds_file_tensor(struct ds_file *file, size_t storage,
                             const struct ckpt_shape *shape)
{
    return value_tensor_whole(&file->arena, file->storage[storage].dtype, shape, storage);
}

struct value *ds_file_new_tensor(struct ds_file *file, size_t *storage, enum ckpt_dtype dtype,
                                 const struct ckpt_shape *shape, struct ckpt_err *err)
{
    struct value *v;
    int64_t numel;

    if (!ckpt_shape_numel(&numel, shape)) {
        note(file, ckpt_fail(err, CKPT_EFORMAT, "a shape has no count of elements"));
        return NULL;
    }
    *storage = ds_file_storage(file, dtype, numel, err);
    if (*storage == SIZE_MAX)
        return NULL;
    v = ds_file_tensor(file, *storage, shape);
    if (!v)
        note(file, ckpt_nomem(err, sizeof(struct value_tensor)));
    return v;
}

/* -- copying --------------------------------------------------------------------------------- */

struct taking {
    struct ds_file             *file;
    const struct torch_archive *from;
};

static struct value *take_tensor(void *ctx, const struct value_tensor *t, struct ckpt_err *err)
{
    const struct taking *k = ctx;
    struct ds_file *file = k->file;
    struct value *v;
    size_t storage;

    if (note(file, ckpt_reserve(&file->copied, file->n_copied, &file->cap_copied,
                                sizeof *file->copied, err)))
        return NULL;
    v = ds_file_new_tensor(file, &storage, t->dtype, &t->shape, err);
    if (!v)
        return NULL;
    v->u.tensor->requires_grad = t->requires_grad;
    v->u.tensor->parameter = t->parameter;
    file->copied[file->n_copied++] = (struct ds_copied){storage, k->from, t};
    return v;
}

struct value *ds_file_take(struct ds_file *file, const struct torch_archive *from,
                           const struct value *v, struct ckpt_err *err)
{
    struct taking k = {file, from};
    struct value *out;

    return note(file, value_copy(&out, &file->arena, v, take_tensor, &k, err)) ? NULL : out;
}

/* Write the bytes of one copied tensor. */
static int put_copied(struct ds_file *file, const struct ds_copied *c, struct ckpt_err *err)
{
    int64_t width = (int64_t)ckpt_dtype_size(c->t->dtype), step = CHUNK / width;
    int64_t numel = file->storage[c->storage].numel;
    unsigned char *chunk = ckpt_alloc_buffer(CHUNK);
    int rc = chunk ? 0 : ckpt_nomem(err, CHUNK);

    for (int64_t at = 0; rc == 0 && at < numel; at += step) {
        int64_t n = numel - at < step ? numel - at : step;

        rc = torch_archive_read(chunk, c->from, c->t, at, n, err);
        if (rc == 0)
            rc = ds_file_put(file, c->storage, at, n, chunk, err);
    }
    ckpt_free(chunk);
    return rc;
}

/* -- the file -------------------------------------------------------------------------------- */

int ds_file_begin(struct ds_file *file, struct ckpt_outdir *dir, const char *path,
                  const struct value *root, struct ckpt_err *err)
{
    struct ckpt_out *out;
    int rc;

    if ((rc = ckpt_outdir_file(&out, dir, path, err)) != 0 ||
        (rc = torch_writer_new(&file->w, out, "archive", root, file->storage, file->n, NULL,
                               err)) != 0)
        return rc;
    for (size_t i = 0; i < file->n_copied; i++)
        if ((rc = put_copied(file, &file->copied[i], err)) != 0)
            return rc;
    return 0;
}

int ds_file_put(const struct ds_file *file, size_t storage, int64_t start, int64_t count,
                const void *src, struct ckpt_err *err)
{
    return torch_writer_put(file->w, storage, start, count, src, err);
}

int ds_file_put_rounded(const struct ds_file *file, size_t storage, int64_t start,
                        int64_t count, const void *src, enum ckpt_dtype from,
                        struct ckpt_err *err)
{
    const unsigned char *elements = src;
    size_t width = ckpt_dtype_size(from);
    unsigned char chunk[ROUNDED * 8];
    int rc = 0;

    for (int64_t at = 0; rc == 0 && at < count; at += ROUNDED) {
        int64_t n = count - at < ROUNDED ? count - at : ROUNDED;

        ckpt_convert(chunk, file->storage[storage].dtype, elements + (size_t)at * width, from,
                     (size_t)n);
        rc = ds_file_put(file, storage, start + at, n, chunk, err);
    }
    return rc;
}

int ds_file_zeros(const struct ds_file *file, size_t storage, int64_t start, int64_t count,
                  struct ckpt_err *err)
{
    static const unsigned char zero[4096];
    int64_t step = (int64_t)(sizeof zero / ckpt_dtype_size(file->storage[storage].dtype));
    int rc;

    for (int64_t at = 0; at < count; at += step)
        if ((rc = ds_file_put(file, storage, start + at, count - at < step ? count - at : step,
                              zero, err)) != 0)
            return rc;
    return 0;
}

int ds_file_commit(struct ds_file *file, struct ckpt_err *err)
{
    struct torch_writer *w = file->w;

    file->w = NULL;
    return torch_writer_commit(w, err);
}

void ds_file_close(struct ds_file *file)
{
    torch_writer_abort(file->w);
    ckpt_free(file->storage);
    ckpt_free(file->copied);
    ckpt_arena_release(&file->arena);
    *file = (struct ds_file){0};
}
