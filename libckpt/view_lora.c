/* view_lora - see view_lora.h. */
#include "libckpt/view_lora.h"

#include <pthread.h>
#include <string.h>

#include "libckpt/convert.h"

#define NO_UPDATE SIZE_MAX
#define BLOCK     4096          /* elements of W worked on at a time */

struct lora {
    struct ckpt_source      *base, *adapter;
    struct ckpt_lora_update *update;
    size_t                  *of;        /* [tensors] index of its update, or NO_UPDATE */
    float                  **a, **b;    /* [updates] factors as f32, loaded on first use */
    size_t                   n_update;
    pthread_mutex_t          lock;      /* of a and b */
};

static void close_lora(void *self)
{
    struct lora *l = self;

    for (size_t i = 0; i < l->n_update; i++) {
        if (l->a)
            ckpt_free(l->a[i]);
        if (l->b)
            ckpt_free(l->b[i]);
    }
    ckpt_free(l->a);
    ckpt_free(l->b);
    ckpt_free(l->of);
    ckpt_free(l->update);
    pthread_mutex_destroy(&l->lock);
    ckpt_source_close(l->base);
    ckpt_source_close(l->adapter);
    ckpt_free(l);
}

/* A whole factor as f32. */
static int load(float **out, struct lora *l, size_t tensor, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(l->adapter, tensor);
    void *raw = ckpt_alloc_buffer((size_t)t->numel * ckpt_dtype_size(t->dtype));
    float *f = ckpt_alloc_buffer((size_t)t->numel * sizeof *f);
    int rc = raw && f ? ckpt_source_read(l->adapter, tensor, 0, t->numel, raw, err)
                      : ckpt_nomem(err, (size_t)t->numel * sizeof *f);

    if (rc == 0)
        ckpt_convert(f, CKPT_F32, raw, t->dtype, (size_t)t->numel);
    else
        ckpt_free(f);
    ckpt_free(raw);
    if (rc == 0)
        *out = f;
    return rc;
}

/* Both factors of an update, loaded once and kept while it may be used. */
static int factors(struct lora *l, size_t u, struct ckpt_err *err)
{
    int rc = 0;

    pthread_mutex_lock(&l->lock);
    if (!l->a[u])
        rc = load(&l->a[u], l, l->update[u].a, err);
    if (rc == 0 && !l->b[u])
        rc = load(&l->b[u], l, l->update[u].b, err);
    pthread_mutex_unlock(&l->lock);
    return rc;
}

/* w[k] += scale * (B @ A)[element start + k] of a matrix with `cols` columns. */
static void add_update(float *w, int64_t start, int64_t n, const struct lora *l, size_t u,
                       int64_t cols)
{
    const struct ckpt_lora_update *up = &l->update[u];
    int64_t r = ckpt_source_tensor(l->adapter, up->a)->shape.dim[0];
    int64_t in = ckpt_source_tensor(l->adapter, up->a)->shape.dim[1];
    float delta[BLOCK];

    for (int64_t at = 0; at < n;) {
        int64_t row = (start + at) / cols, col = (start + at) % cols;
        int64_t k = cols - col < n - at ? cols - col : n - at;

        k = k < BLOCK ? k : BLOCK;
        memset(delta, 0, (size_t)k * sizeof *delta);
        for (int64_t i = 0; i < r; i++) {
            /* Element (row, col + j) is B[row] . A[:, col + j], or of the transpose. */
            const float *line = up->transposed ? NULL : l->a[u] + i * in + col;
            float b = up->transposed ? l->a[u][i * in + row] : l->b[u][row * r + i];

            if (line)
                for (int64_t j = 0; j < k; j++)
                    delta[j] += b * line[j];
            else
                for (int64_t j = 0; j < k; j++)
                    delta[j] += b * l->b[u][(col + j) * r + i];
        }
        for (int64_t j = 0; j < k; j++)
            w[at + j] += up->scale * delta[j];
        at += k;
    }
}

/* The adapter's own copy of a tensor, in the base's dtype. */
static int read_replaced(struct lora *l, size_t i, int64_t start, int64_t count, void *dst,
                         struct ckpt_err *err)
{
    size_t k = l->update[l->of[i]].a;
    enum ckpt_dtype from = ckpt_source_tensor(l->adapter, k)->dtype;
    enum ckpt_dtype to = ckpt_source_tensor(l->base, i)->dtype;
    _Alignas(64) unsigned char stage[BLOCK * 8];

    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;

        if (ckpt_source_read(l->adapter, k, start + at, n, stage, err))
            return err->code;
        ckpt_convert((unsigned char *)dst + (size_t)at * ckpt_dtype_size(to), to, stage, from,
                     (size_t)n);
    }
    return 0;
}

static int lora_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    struct lora *l = self;
    const struct ckpt_tensor *t = ckpt_source_tensor(l->base, i);
    size_t width = ckpt_dtype_size(t->dtype);
    float w[BLOCK];

    if (l->of[i] != NO_UPDATE && l->update[l->of[i]].replace)
        return read_replaced(l, i, start, count, dst, err);
    if (ckpt_source_read(l->base, i, start, count, dst, err))
        return err->code;
    if (l->of[i] == NO_UPDATE)
        return 0;
    if (factors(l, l->of[i], err))
        return err->code;
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        unsigned char *p = (unsigned char *)dst + (size_t)at * width;

        ckpt_convert(w, CKPT_F32, p, t->dtype, (size_t)n);
        add_update(w, start + at, n, l, l->of[i], t->shape.dim[1]);
        ckpt_convert(p, t->dtype, w, CKPT_F32, (size_t)n);
    }
    return 0;
}

static bool lora_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    struct lora *l = self;

    return l->of[i] == NO_UPDATE && ckpt_source_locate(l->base, i, start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = lora_read, .locate = lora_locate, .close = close_lora,
};

/* A is [r, in], B is [out, r], W is [out, in] or, transposed, [in, out]. */
static int check_update(struct lora *l, size_t u, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[u];
    const struct ckpt_tensor *w = ckpt_source_tensor(l->base, up->base);
    const struct ckpt_tensor *a = ckpt_source_tensor(l->adapter, up->a);
    const struct ckpt_tensor *b = up->replace ? a : ckpt_source_tensor(l->adapter, up->b);
    int out = up->transposed ? 1 : 0;
    char sw[96], sa[96], sb[96];

    if (l->of[up->base] != NO_UPDATE)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: two updates of one adapter", w->name);
    l->of[up->base] = u;
    if (up->replace)
        return ckpt_shape_equal(&w->shape, &a->shape) && ckpt_convert_can(w->dtype, a->dtype)
                   ? 0 : ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                                      "%s: the base has %s, the adapter's own copy %s", w->name,
                                      ckpt_shape_text(sw, sizeof sw, &w->shape),
                                      ckpt_shape_text(sa, sizeof sa, &a->shape));

    if (w->shape.rank != 2 || a->shape.rank != 2 || b->shape.rank != 2 ||
        a->shape.dim[0] != b->shape.dim[1] || b->shape.dim[0] != w->shape.dim[out] ||
        a->shape.dim[1] != w->shape.dim[1 - out])
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's B %s and A %s do not fit it",
                            w->name, ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sb, sizeof sb, &b->shape),
                            ckpt_shape_text(sa, sizeof sa, &a->shape));
    if (ckpt_dtype_class(w->dtype) != CKPT_CLASS_FLOAT || !ckpt_convert_can(CKPT_F32, a->dtype) ||
        !ckpt_convert_can(CKPT_F32, b->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s cannot be updated", w->name,
                         ckpt_dtype_name(w->dtype));
    return 0;
}

static int fill(struct lora *l, struct ckpt_tensors *list, const struct ckpt_lora_update *update,
                size_t n_update, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(l->base);

    l->of = ckpt_alloc(n, sizeof *l->of);
    l->update = ckpt_alloc(n_update, sizeof *l->update);
    l->a = ckpt_alloc(n_update, sizeof *l->a);
    l->b = ckpt_alloc(n_update, sizeof *l->b);
    if (!l->of || !l->update || !l->a || !l->b)
        return ckpt_nomem(err, n * sizeof *l->of);
    l->n_update = n_update;
    memcpy(l->update, update, n_update * sizeof *update);
    for (size_t i = 0; i < n; i++)
        l->of[i] = NO_UPDATE;
    for (size_t u = 0; u < n_update; u++)
        if (check_update(l, u, err))
            return err->code;
    for (size_t i = 0; i < n; i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(l->base, i);
        struct ckpt_tensor *added;

        if (ckpt_tensors_add(list, &added, t->name, strlen(t->name), t->dtype, &t->shape, NULL, 0,
                             t->flat, err))
            return err->code;
        added->kind = t->kind;
        added->alias_of = t->alias_of;
    }
    return 0;
}

int ckpt_view_lora(struct ckpt_source **out, struct ckpt_source *base,
                   struct ckpt_source *adapter, const struct ckpt_lora_update *update,
                   size_t n_update, struct ckpt_err *err)
{
    struct lora *l = ckpt_alloc(1, sizeof *l);
    struct ckpt_tensors list = {0};
    const struct ckpt_extra *extra;
    size_t n_extra;

    *out = NULL;
    if (!l) {
        ckpt_source_close(base);
        ckpt_source_close(adapter);
        return ckpt_nomem(err, sizeof *l);
    }
    pthread_mutex_init(&l->lock, NULL);
    l->base = base;
    l->adapter = adapter;
    if (fill(l, &list, update, n_update, err)) {
        close_lora(l);
        ckpt_tensors_release(&list);
        return err->code;
    }
    n_extra = ckpt_source_extras(base, &extra);
    return ckpt_source_new(out, &ops, l, &list, extra, n_extra,
                           json_incref((json_t *)ckpt_source_info(base)), err);
}
