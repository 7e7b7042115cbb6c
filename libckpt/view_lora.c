/* view_lora - see view_lora.h.  Checks and the list are here, factors in lora_factors. */
#include "libckpt/view_lora.h"

#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/lora_factors.h"

#define NO_UPDATE SIZE_MAX
#define BLOCK     4096          /* elements of W worked on at a time */
#define WIDEST    16            /* bytes of an element */

struct lora {
    struct ckpt_source      *base, *adapter;
    struct ckpt_lora_update *update;
    size_t                   n_update;
    size_t                  *of;        /* [tensors] index of its update, or NO_UPDATE */
    size_t                  *from;      /* [tensors] the base's tensor */
    struct lora_factors     *factors;   /* NULL: no update has any */
};

static void close_lora(void *self)
{
    struct lora *l = self;

    lora_factors_free(l->factors);
    for (size_t u = 0; l->update && u < l->n_update; u++)
        ckpt_free((void *)l->update[u].row);
    ckpt_free(l->update);
    ckpt_free(l->of);
    ckpt_free(l->from);
    ckpt_source_close(l->base);
    ckpt_source_close(l->adapter);
    ckpt_free(l);
}

/* Elements [start, start + n) of an adapter's tensor as dtype `to`. */
static int read_as(void *dst, enum ckpt_dtype to, struct ckpt_source *src, size_t i,
                   int64_t start, int64_t n, struct ckpt_err *err)
{
    enum ckpt_dtype from = ckpt_source_tensor(src, i)->dtype;
    size_t width = ckpt_dtype_size(to);
    _Alignas(64) unsigned char stage[BLOCK * WIDEST];

    if (to == from)
        return ckpt_source_read(src, i, start, n, dst, err);
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t k = n - at < BLOCK ? n - at : BLOCK;

        if (ckpt_source_read(src, i, start + at, k, stage, err))
            return err->code;
        ckpt_convert((unsigned char *)dst + (size_t)at * width, to, stage, from, (size_t)k);
    }
    return 0;
}

/* W before the update, as f32, for the lengths of its outputs. */
static int read_w(void *ctx, size_t u, int64_t start, int64_t n, float *w, struct ckpt_err *err)
{
    const struct lora *l = ctx;
    const struct ckpt_lora_update *up = &l->update[u];

    return up->own != CKPT_LORA_NONE ? read_as(w, CKPT_F32, l->adapter, up->own, start, n, err)
                                     : read_as(w, CKPT_F32, l->base, up->base, start, n, err);
}

/* A double keeps its own digits: only what is added has f32's. */
static void add_to_doubles(unsigned char *p, const struct lora_use *use, int64_t start, int64_t n)
{
    float d[BLOCK] = {0};

    lora_apply(d, use, start, n);
    for (int64_t j = 0; j < n; j++) {
        double v;

        memcpy(&v, p + (size_t)j * sizeof v, sizeof v);
        v += (double)d[j];
        memcpy(p + (size_t)j * sizeof v, &v, sizeof v);
    }
}

/* dst is W in its dtype, or to be filled with the adapter's own; the update is added to it. */
static int update_range(struct lora *l, size_t u, int64_t start, int64_t count,
                        unsigned char *dst, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[u];
    enum ckpt_dtype dtype = ckpt_source_tensor(l->base, up->base)->dtype;
    bool own = up->own != CKPT_LORA_NONE;
    struct lora_use use;
    float w[BLOCK];
    int rc = lora_factors_begin(&use, l->factors, u, err);

    if (rc)
        return rc;
    for (int64_t at = 0; rc == 0 && at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK;
        unsigned char *p = dst + (size_t)at * ckpt_dtype_size(dtype);

        if (dtype == CKPT_F64 && !own && !use.stretch) {
            add_to_doubles(p, &use, start + at, n);
            continue;
        }
        if (own)
            rc = read_as(w, CKPT_F32, l->adapter, up->own, start + at, n, err);
        else
            ckpt_convert(w, CKPT_F32, p, dtype, (size_t)n);
        if (rc)
            break;
        lora_apply(w, &use, start + at, n);
        ckpt_convert(p, dtype, w, CKPT_F32, (size_t)n);
    }
    lora_factors_end(l->factors, u);
    return rc;
}

/* Rows of the adapter over those of dst that they replace. */
static int replace_rows(struct lora *l, size_t u, int64_t start, int64_t count,
                        unsigned char *dst, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[u];
    const struct ckpt_tensor *t = ckpt_source_tensor(l->base, up->base);
    int64_t cols = t->shape.dim[1];
    int rc = 0;

    for (size_t k = 0; rc == 0 && k < up->n_row; k++) {
        int64_t first = up->row[k] * cols, end = first + cols;
        int64_t lo = first > start ? first : start;
        int64_t hi = end < start + count ? end : start + count;

        if (lo < hi)
            rc = read_as(dst + (size_t)(lo - start) * ckpt_dtype_size(t->dtype), t->dtype,
                         l->adapter, up->rows, (int64_t)k * cols + lo - first, hi - lo, err);
    }
    return rc;
}

static int lora_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    struct lora *l = self;
    const struct ckpt_lora_update *up = l->of[i] == NO_UPDATE ? NULL : &l->update[l->of[i]];
    int rc = 0;

    if (!up || up->own == CKPT_LORA_NONE)
        rc = ckpt_source_read(l->base, l->from[i], start, count, dst, err);
    else if (up->a == CKPT_LORA_NONE)
        rc = read_as(dst, ckpt_source_tensor(l->base, up->base)->dtype, l->adapter, up->own,
                     start, count, err);
    if (rc == 0 && up && up->a != CKPT_LORA_NONE)
        rc = update_range(l, l->of[i], start, count, dst, err);
    if (rc == 0 && up && up->rows != CKPT_LORA_NONE)
        rc = replace_rows(l, l->of[i], start, count, dst, err);
    return rc;
}

static bool lora_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    struct lora *l = self;

    return l->of[i] == NO_UPDATE && ckpt_source_locate(l->base, l->from[i], start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = lora_read, .locate = lora_locate, .close = close_lora,
};

/* -- what belongs together ------------------------------------------------------------------- */

static const struct ckpt_tensor *of_adapter(const struct lora *l, size_t i)
{
    return i == CKPT_LORA_NONE ? NULL : ckpt_source_tensor(l->adapter, i);
}

static int check_own(const struct ckpt_tensor *w, const struct ckpt_tensor *own,
                     struct ckpt_err *err)
{
    char sw[96], so[96];

    if (!ckpt_shape_equal(&w->shape, &own->shape))
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's own copy %s", w->name,
                            ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(so, sizeof so, &own->shape));
    if (!ckpt_convert_can(w->dtype, own->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s of the adapter cannot become %s", w->name,
                         ckpt_dtype_name(own->dtype), ckpt_dtype_name(w->dtype));
    return 0;
}

static bool is_float(const struct ckpt_tensor *t)
{
    return ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT && ckpt_convert_can(CKPT_F32, t->dtype);
}

/* A is [r, in], B is [out, r], W is [out, in] or, transposed, [in, out]. */
static int check_factors(const struct lora *l, const struct ckpt_lora_update *up,
                         const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *a = of_adapter(l, up->a), *b = of_adapter(l, up->b);
    const struct ckpt_tensor *m = of_adapter(l, up->magnitude);
    int out = up->transposed ? 1 : 0;
    char sw[96], sa[96], sb[96];

    if (w->shape.rank != 2 || a->shape.rank != 2 || b->shape.rank != 2 ||
        a->shape.dim[0] != b->shape.dim[1] || b->shape.dim[0] != w->shape.dim[out] ||
        a->shape.dim[1] != w->shape.dim[1 - out] || a->numel == 0)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's B %s and A %s do not fit it",
                            w->name, ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sb, sizeof sb, &b->shape),
                            ckpt_shape_text(sa, sizeof sa, &a->shape));
    if (m && (m->shape.rank != 1 || m->numel != w->shape.dim[out]))
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's magnitudes %s", w->name,
                            ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sa, sizeof sa, &m->shape));
    if (!is_float(w) || !is_float(a) || !is_float(b) || (m && !is_float(m)))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s is not updated by %s and %s", w->name,
                         ckpt_dtype_name(w->dtype), ckpt_dtype_name(b->dtype),
                         ckpt_dtype_name(a->dtype));
    return 0;
}

static int check_rows(const struct lora *l, const struct ckpt_lora_update *up,
                      const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *r = of_adapter(l, up->rows);
    char sw[96], sr[96];

    if (w->shape.rank != 2 || r->shape.rank != 2 || r->shape.dim[1] != w->shape.dim[1] ||
        (size_t)r->shape.dim[0] != up->n_row)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter has %s for %zu of its rows", w->name,
                            ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sr, sizeof sr, &r->shape), up->n_row);
    for (size_t k = 0; k < up->n_row; k++)
        if (up->row[k] < 0 || up->row[k] >= w->shape.dim[0])
            return ckpt_fail(err, CKPT_EMISMATCH, "%s: row %lld is replaced, it has %lld", w->name,
                             (long long)up->row[k], (long long)w->shape.dim[0]);
    if (!ckpt_convert_can(w->dtype, r->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s of the adapter cannot become %s", w->name,
                         ckpt_dtype_name(r->dtype), ckpt_dtype_name(w->dtype));
    return 0;
}

static int check_update(struct lora *l, size_t u, struct ckpt_err *err)
{
    const struct ckpt_lora_update *up = &l->update[u];
    const struct ckpt_tensor *w = ckpt_source_tensor(l->base, up->base);

    if (!up->as && l->of[up->base] != NO_UPDATE)
        return ckpt_fail(err, CKPT_EMISMATCH, "%s: two updates of one adapter", w->name);
    if (!up->as)
        l->of[up->base] = u;
    if (up->own != CKPT_LORA_NONE && check_own(w, of_adapter(l, up->own), err))
        return err->code;
    if (up->a != CKPT_LORA_NONE && check_factors(l, up, w, err))
        return err->code;
    return up->rows != CKPT_LORA_NONE ? check_rows(l, up, w, err) : 0;
}

/* -- the list -------------------------------------------------------------------------------- */

static int copy_updates(struct lora *l, const struct ckpt_lora_update *update, size_t n,
                        struct ckpt_err *err)
{
    l->update = ckpt_alloc(n, sizeof *l->update);
    if (!l->update)
        return ckpt_nomem(err, n * sizeof *l->update);
    l->n_update = n;
    for (size_t u = 0; u < n; u++) {
        int64_t *row = ckpt_alloc(update[u].n_row, sizeof *row);

        if (!row)
            return ckpt_nomem(err, update[u].n_row * sizeof *row);
        if (update[u].n_row)
            memcpy(row, update[u].row, update[u].n_row * sizeof *row);
        l->update[u] = update[u];
        l->update[u].row = row;
    }
    return 0;
}

static int add(struct lora *l, struct ckpt_tensors *list, const char *name, size_t base, size_t u,
               struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(l->base, base);
    struct ckpt_tensor *added;

    if (ckpt_tensors_add(list, &added, name, strlen(name), t->dtype, &t->shape, NULL, 0, false,
                         err))
        return err->code;
    added->kind = t->kind;
    l->from[list->n - 1] = base;
    l->of[list->n - 1] = u;
    return 0;
}

/* Ties of the base, except where one of a group changes: then each stands for itself. */
static int keep_ties(const struct lora *l, struct ckpt_tensors *list, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(l->base);
    bool *changed = ckpt_alloc(n, sizeof *changed);

    if (!changed)
        return ckpt_nomem(err, n);
    for (size_t i = 0; i < n; i++)
        if (l->of[i] != NO_UPDATE)
            changed[ckpt_source_tensor(l->base, i)->alias_of] = true;
    for (size_t i = 0; i < n; i++) {
        size_t root = ckpt_source_tensor(l->base, i)->alias_of;

        if (!changed[root])
            list->item[i].alias_of = root;
    }
    ckpt_free(changed);
    return 0;
}

static int make_factors(struct lora *l, struct ckpt_err *err)
{
    struct lora_pair *pair = ckpt_alloc(l->n_update, sizeof *pair);
    int rc;

    if (!pair)
        return ckpt_nomem(err, l->n_update * sizeof *pair);
    for (size_t u = 0; u < l->n_update; u++) {
        const struct ckpt_lora_update *up = &l->update[u];
        const struct ckpt_shape *w = &ckpt_source_tensor(l->base, up->base)->shape;

        pair[u] = (struct lora_pair){up->a, up->b, up->magnitude, up->scale, up->transposed,
                                     w->dim[0], w->dim[1]};
    }
    rc = lora_factors_new(&l->factors, l->adapter, pair, l->n_update, read_w, l, err);
    ckpt_free(pair);
    return rc;
}

static int fill(struct lora *l, struct ckpt_tensors *list, const struct ckpt_lora_update *update,
                size_t n_update, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(l->base);
    bool any = false;

    l->of = ckpt_alloc(n + n_update, sizeof *l->of);
    l->from = ckpt_alloc(n + n_update, sizeof *l->from);
    if (!l->of || !l->from)
        return ckpt_nomem(err, n * sizeof *l->of);
    for (size_t i = 0; i < n; i++)
        l->of[i] = NO_UPDATE;
    if (copy_updates(l, update, n_update, err))
        return err->code;
    for (size_t u = 0; u < n_update; u++) {
        any = any || update[u].a != CKPT_LORA_NONE;
        if (check_update(l, u, err))
            return err->code;
    }
    for (size_t i = 0; i < n; i++)
        if (add(l, list, ckpt_source_tensor(l->base, i)->name, i, l->of[i], err))
            return err->code;
    if (keep_ties(l, list, err))
        return err->code;
    for (size_t u = 0; u < n_update; u++)
        if (update[u].as && add(l, list, update[u].as, update[u].base, u, err))
            return err->code;
    return any ? make_factors(l, err) : 0;
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
