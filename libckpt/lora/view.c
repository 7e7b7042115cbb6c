/* lora/view - see lora/view.h.  Checks and the list are here, reading in lora_range. */
#include "libckpt/lora/view.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "libckpt/convert.h"
#include "libckpt/log.h"
#include "libckpt/lora/range.h"
#include "libckpt/base/map.h"

#define KEPT 0.9                /* of the change: less is told */

/* Elements that kept counts when all are read; *dtype is that of the first. */
static int64_t measured(const struct lora *l, enum ckpt_dtype *dtype)
{
    int64_t n = 0;

    for (size_t u = 0; l->update && u < l->n_update; u++) {
        const struct ckpt_lora_update *up = &l->update[u];
        const struct ckpt_tensor *w = ckpt_source_tensor(l->base, up->base);

        if ((up->a == CKPT_LORA_NONE && up->add == CKPT_LORA_NONE) || !lora_only_adds(up) ||
            ckpt_dtype_size(w->dtype) >= sizeof(float))
            continue;
        *dtype = n ? *dtype : w->dtype;
        n += up->part.n_row ? up->part.n_row * up->part.n_col : w->numel;
    }
    return n;
}

/* Say so when the weights that were read lack much of the change: it is smaller than the step
 * from one value to the next. */
static void tell_kept(const struct lora *l)
{
    enum ckpt_dtype dtype = CKPT_F32;
    int64_t n = l->kept.n ? measured(l, &dtype) : 0;

    if (n > 0 && l->kept.n >= n && l->kept.got < KEPT * l->kept.wanted)
        ckpt_log(CKPT_LOG_WARNING, "%s keeps %.0f %% of the change by %s, the rest is lost in "
                 "rounding; F32 keeps all", ckpt_dtype_name(dtype),
                 100 * fmax(l->kept.got / l->kept.wanted, 0),
                 l->n_adapter > 1 ? "the adapters" : "the adapter");
}

static void close_lora(void *self)
{
    struct lora *l = self;

    if (l->item)
        tell_kept(l);
    pthread_mutex_destroy(&l->lock);
    lora_factors_free(l->factors);
    for (size_t u = 0; l->update && u < l->n_update; u++)
        ckpt_free((void *)l->update[u].row);
    ckpt_free(l->update);
    ckpt_free(l->item);
    ckpt_source_close(l->base);
    for (size_t i = 0; i < l->n_adapter; i++)
        ckpt_source_close(l->adapter[i]);
    ckpt_free(l->adapter);
    ckpt_free(l);
}

static int lora_read(void *self, size_t i, int64_t start, int64_t count, void *dst,
                     struct ckpt_err *err)
{
    return lora_range_read(self, i, start, count, dst, err);
}

static bool lora_locate(void *self, size_t i, int64_t start, int64_t count,
                        struct ckpt_extent *out)
{
    struct lora *l = self;

    return l->item[i].n == 0 &&
           ckpt_source_locate(l->base, l->item[i].base, start, count, out);
}

static const struct ckpt_source_ops ops = {
    .format = "view", .read = lora_read, .locate = lora_locate, .close = close_lora,
};

/* -- what belongs together ------------------------------------------------------------------- */

static const struct ckpt_tensor *of_adapter(const struct lora *l, size_t from, size_t i)
{
    return i == CKPT_LORA_NONE ? NULL : ckpt_source_tensor(l->adapter[from], i);
}

static bool is_float(const struct ckpt_tensor *t)
{
    return ckpt_dtype_class(t->dtype) == CKPT_CLASS_FLOAT && ckpt_convert_can(CKPT_F32, t->dtype);
}

/* Same shape, or where allowed another number of rows. */
static bool same_but_rows(const struct ckpt_tensor *w, const struct ckpt_tensor *own, bool resized)
{
    struct ckpt_shape s = own->shape;

    if (resized && s.rank > 0 && w->shape.rank > 0)
        s.dim[0] = w->shape.dim[0];
    return ckpt_shape_equal(&w->shape, &s);
}

/* Whether W's rows lie in the stack, one after another. */
static bool in_stack(const struct ckpt_tensor *w, const struct ckpt_tensor *own, int64_t first)
{
    return w->shape.rank == 2 && own->shape.rank == 3 && own->shape.dim[2] == w->shape.dim[1] &&
           first >= 0 && w->numel <= own->numel && first <= own->numel - w->numel;
}

static int check_own(const struct lora *l, const struct ckpt_lora_update *up,
                     const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *own = of_adapter(l, up->from, up->own);
    char sw[96], so[96];

    if (up->stacked ? !in_stack(w, own, up->own_first) : !same_but_rows(w, own, up->resized))
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's own copy %s", w->name,
                            ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(so, sizeof so, &own->shape));
    if (!ckpt_convert_can(w->dtype, own->dtype))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s of the adapter cannot become %s", w->name,
                         ckpt_dtype_name(own->dtype), ckpt_dtype_name(w->dtype));
    return 0;
}

/* Shape of a tensor as a matrix of its first axis and all others; 0 rows when it has no axes. */
static void as_matrix(int64_t *rows, int64_t *cols, const struct ckpt_tensor *t)
{
    *rows = t->shape.rank > 1 && t->numel ? t->shape.dim[0] : 0;
    *cols = *rows ? t->numel / *rows : 0;
}

/* The part of W that an update names, with defaults filled in; false when it exceeds W. */
static bool whole_part(struct ckpt_lora_part *p, const struct lora *l,
                       const struct ckpt_lora_update *up, const struct ckpt_tensor *w)
{
    int64_t rows, cols;

    *p = up->part;
    if (p->n_row == 0) {
        as_matrix(&p->n_row, &p->n_col, w);
        p->first = 0;
    }
    if (p->rank == 0) {
        as_matrix(&rows, &cols, of_adapter(l, up->from, up->a));
        p->rank = rows;
        p->b_step = 1;
    }
    return p->n_row > 0 && p->n_col > 0 && p->rank > 0 && p->first >= 0 &&
           p->n_row <= w->numel / p->n_col && p->first <= w->numel - p->n_row * p->n_col;
}

/* A is [r, in], B is [out, r], W is [out, in] or, transposed, [in, out]. */
static bool factors_fit(const struct lora *l, const struct ckpt_lora_update *up,
                        const struct ckpt_tensor *w)
{
    struct ckpt_lora_part p;
    int64_t a_rows, a_cols, b_rows, b_cols, in, out;

    as_matrix(&a_rows, &a_cols, of_adapter(l, up->from, up->a));
    as_matrix(&b_rows, &b_cols, of_adapter(l, up->from, up->b));
    if (!whole_part(&p, l, up, w))
        return false;
    in = up->transposed ? p.n_row : p.n_col;
    out = up->transposed ? p.n_col : p.n_row;
    if (up->part.rank == 0 && (a_rows != b_cols || b_rows != out))
        return false;
    return a_cols == in && p.a_row >= 0 && p.a_row <= a_rows - p.rank && p.b_row >= 0 &&
           p.b_row <= b_rows - out && p.b_col >= 0 && p.b_step > 0 && p.b_col < b_cols &&
           p.rank - 1 <= (b_cols - 1 - p.b_col) / p.b_step;
}

static int check_factors(const struct lora *l, const struct ckpt_lora_update *up,
                         const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *a = of_adapter(l, up->from, up->a);
    const struct ckpt_tensor *b = of_adapter(l, up->from, up->b);
    const struct ckpt_tensor *m = of_adapter(l, up->from, up->magnitude);
    char sw[96], sa[96], sb[96];

    if (!factors_fit(l, up, w))
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, the adapter's B %s and A %s do not fit it",
                            w->name, ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sb, sizeof sb, &b->shape),
                            ckpt_shape_text(sa, sizeof sa, &a->shape));
    if (m && m->numel != (up->transposed ? w->numel / w->shape.dim[0] : w->shape.dim[0]))
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

static int check_add(const struct lora *l, const struct ckpt_lora_update *up,
                     const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *v = of_adapter(l, up->from, up->add);
    char sw[96], sv[96];

    if (v->numel != w->numel)
        return ckpt_fail_as(err, CKPT_EMISMATCH, "shape",
                            "%s: the base has %s, what the adapter adds %s", w->name,
                            ckpt_shape_text(sw, sizeof sw, &w->shape),
                            ckpt_shape_text(sv, sizeof sv, &v->shape));
    if (!is_float(w) || !is_float(v))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: %s is not added to %s", w->name,
                         ckpt_dtype_name(v->dtype), ckpt_dtype_name(w->dtype));
    return 0;
}

static int check_rows(const struct lora *l, const struct ckpt_lora_update *up,
                      const struct ckpt_tensor *w, struct ckpt_err *err)
{
    const struct ckpt_tensor *r = of_adapter(l, up->from, up->rows);
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

/* w: the tensor as it is in the result. */
static int check_update(struct lora *l, const struct ckpt_lora_update *up,
                        const struct ckpt_tensor *w, struct ckpt_err *err)
{
    int rc;

    if (up->own != CKPT_LORA_NONE &&
        (rc = check_own(l, up, ckpt_source_tensor(l->base, up->base), err)) != 0)
        return rc;
    if (up->a != CKPT_LORA_NONE && (rc = check_factors(l, up, w, err)) != 0)
        return rc;
    if (up->add != CKPT_LORA_NONE && (rc = check_add(l, up, w, err)) != 0)
        return rc;
    return up->rows != CKPT_LORA_NONE ? check_rows(l, up, w, err) : 0;
}

/* Check the updates of one tensor: those of an adapter are parts of it, in order. */
static int check_item(struct lora *l, size_t i, const struct ckpt_tensor *w, struct ckpt_err *err)
{
    int64_t end[CKPT_LORA_MAX_ADAPTERS] = {0};
    const struct lora_item *item = &l->item[i];
    bool shared = item->n > 1;
    int rc;

    for (size_t u = item->first; u < item->first + item->n; u++) {
        const struct ckpt_lora_update *up = &l->update[u];
        int64_t lo, hi;

        if ((rc = check_update(l, up, w, err)) != 0)
            return rc;
        lora_range_of(l, u, &lo, &hi);
        if (lo < end[up->from])
            return ckpt_fail(err, CKPT_EMISMATCH, "%s: two updates of one adapter", w->name);
        end[up->from] = hi;
        shared |= up->weight != 1;
    }
    if (shared && item->resized)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: the adapter gives it another number of rows, "
                         "which goes with no other adapter and no weight", w->name);
    if (shared && !is_float(w))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: LoRA deltas of %s cannot be weighted",
                         w->name, ckpt_dtype_name(w->dtype));
    return 0;
}

/* -- the list -------------------------------------------------------------------------------- */

/* Map each update to its item: the base's tensor, or a further tensor with the update's name. */
static int count_items(size_t *of, size_t *n_item, const struct lora *l,
                       const struct ckpt_lora_update *update, size_t n, struct ckpt_err *err)
{
    struct ckpt_map *further = NULL;
    int rc = ckpt_map_new(&further, 8, err);

    *n_item = ckpt_source_count(l->base);
    for (size_t u = 0; rc == 0 && u < n; u++) {
        const char *as = update[u].as;

        of[u] = as ? ckpt_map_get(further, as, strlen(as)) : update[u].base;
        if (as && of[u] == CKPT_MAP_NONE) {
            of[u] = (*n_item)++;
            rc = ckpt_map_add(further, as, strlen(as), of[u], err);
        }
    }
    ckpt_map_free(further);
    return rc;
}

/* Copy the updates, sorted by item, each with its own rows, to l->update. */
static int copy_updates(struct lora *l, const struct ckpt_lora_update *update, const size_t *of,
                        size_t n, size_t n_item, struct ckpt_err *err)
{
    l->update = ckpt_alloc(n, sizeof *l->update);
    l->item = ckpt_alloc(n_item, sizeof *l->item);
    if (!l->update || !l->item)
        return ckpt_nomem(err, n * sizeof *l->update);
    l->n_update = n;
    for (size_t i = 0; i < n_item; i++)
        l->item[i].base = i;
    for (size_t u = 0; u < n; u++) {
        l->item[of[u]].base = update[u].base;
        l->item[of[u]].n++;
    }
    for (size_t i = 0, at = 0; i < n_item; at += l->item[i].n, i++)
        l->item[i].first = at;
    for (size_t i = 0; i < n_item; i++)
        l->item[i].n = 0;
    for (size_t u = 0; u < n; u++) {
        struct lora_item *item = &l->item[of[u]];
        struct ckpt_lora_update *to = &l->update[item->first + item->n++];
        int64_t *row = ckpt_alloc(update[u].n_row, sizeof *row);

        if (!row)
            return ckpt_nomem(err, update[u].n_row * sizeof *row);
        if (update[u].n_row)
            memcpy(row, update[u].row, update[u].n_row * sizeof *row);
        *to = update[u];
        to->row = row;
        if (to->own != CKPT_LORA_NONE && to->resized)
            item->resized = of_adapter(l, to->from, to->own)->shape.dim[0] !=
                            ckpt_source_tensor(l->base, to->base)->shape.dim[0];
    }
    return 0;
}

static int add(struct lora *l, struct ckpt_tensors *list, size_t i, struct ckpt_err *err)
{
    const struct lora_item *item = &l->item[i];
    const struct ckpt_lora_update *up = item->n ? &l->update[item->first] : NULL;
    const struct ckpt_tensor *t = ckpt_source_tensor(l->base, item->base);
    const char *name = up && up->as ? up->as : t->name;
    struct ckpt_shape shape = t->shape;
    struct ckpt_tensor *added;
    int rc;

    assert(item->n ? up != NULL : !item->resized);
    if (item->resized)
        shape.dim[0] = of_adapter(l, up->from, up->own)->shape.dim[0];
    if ((rc = ckpt_tensors_add(list, &added, name, strlen(name), t->dtype, &shape, NULL, 0,
                               false, err)) != 0)
        return rc;
    added->kind = t->kind;
    return check_item(l, i, added, err);
}

/* Keep the base's ties, except where one tensor of a group changes: then all become independent. */
static int keep_ties(const struct lora *l, struct ckpt_tensors *list, struct ckpt_err *err)
{
    size_t n = ckpt_source_count(l->base);
    bool *changed = ckpt_alloc(n, sizeof *changed);

    if (!changed)
        return ckpt_nomem(err, n);
    assert(n == 0 || list->item);
    for (size_t i = 0; i < n; i++)
        if (l->item[i].n)
            changed[ckpt_source_tensor(l->base, i)->alias_of] = true;
    for (size_t i = 0; i < n; i++) {
        size_t root = ckpt_source_tensor(l->base, i)->alias_of;

        if (!changed[root])
            list->item[i].alias_of = root;
    }
    ckpt_free(changed);
    return 0;
}

static int make_factors(struct lora *l, const struct ckpt_tensors *list, struct ckpt_err *err)
{
    struct lora_pair *pair = ckpt_alloc(l->n_update, sizeof *pair);
    int rc;

    if (!pair)
        return ckpt_nomem(err, l->n_update * sizeof *pair);
    for (size_t i = 0; i < list->n; i++)
        for (size_t u = l->item[i].first; u < l->item[i].first + l->item[i].n; u++) {
            const struct ckpt_lora_update *up = &l->update[u];
            struct ckpt_lora_part p = {0};

            if (up->a != CKPT_LORA_NONE)
                whole_part(&p, l, up, &list->item[i]);
            pair[u] = (struct lora_pair){
                l->adapter[up->from], up->a, up->b, up->magnitude,
                lora_only_adds(up) ? up->scale * up->weight : up->scale, up->transposed,
                p.n_row, p.n_col, p.rank, p.a_row, p.b_row, p.b_col, p.b_step,
            };
        }
    rc = lora_factors_new(&l->factors, pair, l->n_update, lora_range_start, l, err);
    ckpt_free(pair);
    return rc;
}

static int fill(struct lora *l, struct ckpt_tensors *list, const struct ckpt_lora_update *update,
                size_t n_update, struct ckpt_err *err)
{
    size_t *of = ckpt_alloc(n_update, sizeof *of), n_item = 0;
    bool any = false;
    int rc = of ? count_items(of, &n_item, l, update, n_update, err)
                : ckpt_nomem(err, n_update * sizeof *of);

    if (rc == 0)
        rc = copy_updates(l, update, of, n_update, n_item, err);
    ckpt_free(of);
    for (size_t i = 0; rc == 0 && i < n_item; i++)
        rc = add(l, list, i, err);
    if (rc == 0)
        rc = keep_ties(l, list, err);
    for (size_t u = 0; u < n_update; u++)
        any = any || update[u].a != CKPT_LORA_NONE;
    return rc == 0 && any ? make_factors(l, list, err) : rc;
}

/* Allocate l with the sources; out of memory, they are closed. */
static int hold(struct lora **out, struct ckpt_source *base, struct ckpt_source *const *adapter,
                size_t n_adapter, struct ckpt_err *err)
{
    struct lora *l = ckpt_alloc(1, sizeof *l);

    if (l) {
        l->adapter = ckpt_alloc(n_adapter, sizeof *l->adapter);
        pthread_mutex_init(&l->lock, NULL);
    }
    if (!l || !l->adapter) {
        ckpt_free(l);
        ckpt_source_close(base);
        for (size_t i = 0; i < n_adapter; i++)
            ckpt_source_close(adapter[i]);
        return ckpt_nomem(err, sizeof *l);
    }
    memcpy(l->adapter, adapter, n_adapter * sizeof *adapter);
    l->n_adapter = n_adapter;
    l->base = base;
    *out = l;
    return 0;
}

int ckpt_view_lora(struct ckpt_source **out, struct ckpt_source *base,
                   struct ckpt_source *const *adapter, size_t n_adapter,
                   const struct ckpt_lora_update *update, size_t n_update, struct ckpt_err *err)
{
    struct ckpt_tensors list = {0};
    const struct ckpt_extra *extra;
    struct lora *l = NULL;
    size_t n_extra;
    int rc;

    *out = NULL;
    if ((rc = hold(&l, base, adapter, n_adapter, err)) != 0)
        return rc;
    rc = n_adapter <= CKPT_LORA_MAX_ADAPTERS
             ? fill(l, &list, update, n_update, err)
             : ckpt_fail(err, CKPT_ELIMIT, "%zu adapters, %d at most", n_adapter,
                         CKPT_LORA_MAX_ADAPTERS);
    if (rc) {
        close_lora(l);
        ckpt_tensors_release(&list);
        return rc;
    }
    n_extra = ckpt_source_extras(base, &extra);
    return ckpt_source_new(out, &ops, l, &list, extra, n_extra,
                           json_incref((json_t *)ckpt_source_info(base)), err);
}
