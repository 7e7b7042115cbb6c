/* source - see source.h.  Argument checks around a format's or a view's calls. */
#include "libckpt/source.h"
#include "libckpt/err.h"

#include <string.h>

struct ckpt_source {
    const struct ckpt_source_ops *ops;
    void                         *self;
    struct ckpt_tensors           list;
    const struct ckpt_extra      *extra;
    size_t                        n_extra;
    json_t                       *info;
};

int ckpt_source_new(struct ckpt_source **out, const struct ckpt_source_ops *ops, void *self,
                    struct ckpt_tensors *list, const struct ckpt_extra *extra, size_t n_extra,
                    json_t *info, struct ckpt_err *err)
{
    struct ckpt_source *s = ckpt_alloc(1, sizeof *s);

    int rc = 0;

    *out = NULL;
    if (s && !info)
        info = json_object();
    if (!s || !info)
        rc = ckpt_nomem(err, sizeof *s);
    for (size_t i = 0; rc == 0 && i < list->n; i++)
        if (list->item[i].alias_of >= list->n)
            rc = ckpt_fail(err, CKPT_ESTATE, "tensor %s: tied to tensor %zu of %zu",
                           list->item[i].name, list->item[i].alias_of, list->n);
    if (rc) {
        ckpt_free(s);
        json_decref(info);
        if (ops->close)
            ops->close(self);
        ckpt_tensors_release(list);
        return rc;
    }
    s->ops = ops;
    s->self = self;
    s->list = *list;
    memset(list, 0, sizeof *list);
    s->extra = extra;
    s->n_extra = n_extra;
    s->info = info;
    *out = s;
    return 0;
}

void ckpt_source_close(struct ckpt_source *src)
{
    if (!src)
        return;
    json_decref(src->info);
    if (src->ops->close)
        src->ops->close(src->self);
    ckpt_tensors_release(&src->list);
    ckpt_free(src);
}

const char *ckpt_source_format(const struct ckpt_source *src) { return src->ops->format; }

void *ckpt_source_self(const struct ckpt_source *src, const struct ckpt_source_ops *ops)
{
    return src->ops == ops ? src->self : NULL;
}

size_t ckpt_source_count(const struct ckpt_source *src) { return src->list.n; }

const struct ckpt_tensor *ckpt_source_tensor(const struct ckpt_source *src, size_t i)
{
    return i < src->list.n ? &src->list.item[i] : NULL;
}

const struct ckpt_tensors *ckpt_source_tensors(const struct ckpt_source *src)
{
    return &src->list;
}

size_t ckpt_source_find(const struct ckpt_source *src, const char *name)
{
    return ckpt_tensors_find(&src->list, name);
}

size_t ckpt_source_extras(const struct ckpt_source *src, const struct ckpt_extra **out)
{
    *out = src->extra;
    return src->n_extra;
}

const struct ckpt_extra *ckpt_source_extra(const struct ckpt_source *src, const char *name)
{
    for (size_t i = 0; i < src->n_extra; i++)
        if (strcmp(src->extra[i].name, name) == 0)
            return &src->extra[i];
    return NULL;
}

const json_t *ckpt_source_info(const struct ckpt_source *src) { return src->info; }

/* The shape whose coordinates the tensor's boxes use. */
static struct ckpt_shape box_shape(const struct ckpt_tensor *t)
{
    return t->flat ? ckpt_shape_1d(t->numel) : t->shape;
}

/* Prefix the error with the tensor's name, unless a source beneath has done so. */
static int in_tensor(struct ckpt_err *err, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(err->text, "tensor ", 7) == 0 && strncmp(err->text + 7, name, n) == 0 &&
        err->text[7 + n] == ':')
        return ckpt_err_code(err);
    return ckpt_err_in(err, "tensor %s", name);
}

int ckpt_source_read(struct ckpt_source *src, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    struct ckpt_shape shape;
    int rc;

    if (!t || start < 0 || count < 0 || start > t->numel || count > t->numel - start)
        return ckpt_fail(err, CKPT_ESTATE, "tensor %zu: elements [%lld, +%lld) are not there",
                         i, (long long)start, (long long)count);
    if (count == 0)
        return 0;
    if (t->unread)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s", t->name, t->unread);
    if (ckpt_dtype_size(t->dtype) == 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: %s elements are not read", t->name,
                         ckpt_dtype_name(t->dtype));
    if (src->ops->read) {
        rc = src->ops->read(src->self, i, start, count, dst, err);
    } else {
        shape = box_shape(t);
        rc = ckpt_fragment_gather(dst, &shape, t->dtype, t->frag, t->n_frag, start, count, err);
    }
    return rc ? in_tensor(err, t->name) : 0;
}

bool ckpt_source_locate(struct ckpt_source *src, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    struct ckpt_shape shape;

    if (!t || count <= 0 || start < 0 || start > t->numel || count > t->numel - start ||
        ckpt_dtype_size(t->dtype) == 0 || t->unread)
        return false;
    if (src->ops->locate)
        return src->ops->locate(src->self, i, start, count, out);
    if (src->ops->read && t->n_frag == 0)
        return false;
    shape = box_shape(t);
    return ckpt_fragment_locate(out, &shape, t->dtype, t->frag, t->n_frag, start, count);
}
