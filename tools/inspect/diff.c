/*
 * diff - differences between two checkpoints, tensor by tensor; see inspect.h.
 *
 * Values are compared as doubles, NaN equal to NaN.  Identical bytes are not converted.
 */
#include <math.h>
#include <string.h>

#include "libckpt/base/pool.h"
#include "tools/inspect/inspect.h"

#define N           4096        /* elements compared at a time */
#define PIECE_BYTES ((size_t)256 << 10)

/* A tensor that both have. */
struct pair {
    size_t  a, b;
    int64_t changed;            /* elements that differ */
    double  most;               /* |a - b|: infinite where one is NaN, or values have no order */
    double  aa, bb, ab, dd;     /* sums of squares and products over finite pairs */
};

struct job {
    struct ckpt_source *a, *b;
    struct pair        *pair;
};

static void add(struct pair *p, const double *x, const double *y, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        bool same = x[j] == y[j] || (isnan(x[j]) && isnan(y[j]));
        double d = same ? 0 : fabs(x[j] - y[j]);

        p->changed += !same;
        p->most = isnan(d) ? INFINITY : fmax(p->most, d);
        if (!isfinite(x[j]) || !isfinite(y[j]))
            continue;
        p->aa += x[j] * x[j];
        p->bb += y[j] * y[j];
        p->ab += x[j] * y[j];
        p->dd += d * d;
    }
}

/* Whether two tensors of the same dtype and shape have the same bytes, as most pairs do. */
static int same_bytes(bool *same, const struct job *w, const struct pair *p, size_t width,
                      struct ckpt_err *err)
{
    int64_t numel = ckpt_source_tensor(w->a, p->a)->numel, step = (int64_t)(PIECE_BYTES / width);
    unsigned char *buf = ckpt_alloc_buffer(2 * PIECE_BYTES);
    int rc = buf ? 0 : ckpt_nomem(err, 2 * PIECE_BYTES);

    *same = rc == 0;
    for (int64_t at = 0; rc == 0 && *same && at < numel; at += step) {
        int64_t n = numel - at < step ? numel - at : step;

        rc = ckpt_source_read(w->a, p->a, at, n, buf, err);
        if (rc == 0)
            rc = ckpt_source_read(w->b, p->b, at, n, buf + PIECE_BYTES, err);
        *same = rc == 0 && memcmp(buf, buf + PIECE_BYTES, (size_t)n * width) == 0;
    }
    ckpt_free(buf);
    return rc;
}

static int diff_one(void *ctx, size_t k, size_t worker, struct ckpt_err *err)
{
    struct job *w = ctx;
    struct pair *p = &w->pair[k];
    const struct ckpt_tensor *t = ckpt_source_tensor(w->a, p->a);
    enum ckpt_dtype ta = t->dtype, tb = ckpt_source_tensor(w->b, p->b)->dtype;
    unsigned char ra[N * 16], rb[N * 16];
    double da[N], db[N];
    bool numbers = ckpt_convert_can(CKPT_F64, ta) && ckpt_convert_can(CKPT_F64, tb), equal = false;
    int rc;

    (void)worker;
    if (!ckpt_shape_equal(&t->shape, &ckpt_source_tensor(w->b, p->b)->shape))
        return 0;
    if (!ckpt_dtype_size(ta) || !ckpt_dtype_size(tb))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: values of %s are not read", t->name,
                         ckpt_dtype_name(ckpt_dtype_size(ta) ? tb : ta));
    rc = ta == tb ? same_bytes(&equal, w, p, ckpt_dtype_size(ta), err) : 0;
    if (rc || equal)
        return rc;
    for (int64_t at = 0; at < t->numel; at += N) {
        int64_t n = t->numel - at < N ? t->numel - at : N;
        bool same;

        if ((rc = ckpt_source_read(w->a, p->a, at, n, ra, err)) != 0 ||
            (rc = ckpt_source_read(w->b, p->b, at, n, rb, err)) != 0)
            return rc;
        same = ta == tb && memcmp(ra, rb, (size_t)n * ckpt_dtype_size(ta)) == 0;
        if (!numbers) {
            p->most = same ? p->most : INFINITY;
            p->changed += same ? 0 : n;
            continue;
        }
        ckpt_convert(da, CKPT_F64, ra, ta, (size_t)n);
        if (same)
            memcpy(db, da, (size_t)n * sizeof *db);
        else
            ckpt_convert(db, CKPT_F64, rb, tb, (size_t)n);
        add(p, da, db, n);
    }
    return 0;
}

static void put_names(struct out *o, const char *name, const char *what, const char *first,
                      const char *second)
{
    out_cell_str(o, name);
    out_cell_str(o, what);
    out_cell_str(o, first);
    out_cell_str(o, second);
}

static void put_none(struct out *o)
{
    for (int k = 0; k < 4; k++)
        out_cell_none(o);
}

static void put_ratio(struct out *o, double part, double whole)
{
    out_cell_known(o, whole > 0 && isfinite(part / whole) ? part / whole : NAN);
}

/* Add a row for the differences of a pair; false when there are none. */
static bool put_pair(struct out *o, const struct job *w, const struct pair *p)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(w->a, p->a);
    const struct ckpt_tensor *u = ckpt_source_tensor(w->b, p->b);
    char first[256], second[256];

    if (!ckpt_shape_equal(&t->shape, &u->shape)) {
        put_names(o, t->name, "shape", ckpt_shape_text(first, sizeof first, &t->shape),
                  ckpt_shape_text(second, sizeof second, &u->shape));
        put_none(o);
        return true;
    }
    if (t->dtype == u->dtype && p->changed == 0)
        return false;
    put_names(o, t->name, t->dtype == u->dtype ? "values" : "dtype", ckpt_dtype_name(t->dtype),
              ckpt_dtype_name(u->dtype));
    out_cell_int(o, p->changed);
    put_ratio(o, sqrt(p->dd), sqrt(p->aa));
    put_ratio(o, p->ab, sqrt(p->aa) * sqrt(p->bb));
    out_cell_real(o, p->most);
    return true;
}

static void put_absent(struct out *o, const struct ckpt_tensor *t, bool in_first)
{
    char shape[256];

    ckpt_shape_text(shape, sizeof shape, &t->shape);
    put_names(o, t->name, in_first ? "only in the first" : "only in the second",
              in_first ? shape : "", in_first ? "" : shape);
    put_none(o);
}

static int64_t put_differences(struct out *o, const struct inspect_want *w, const struct job *j)
{
    static const struct out_column columns[] = {
        {"name", "tensor", OUT_LEFT},        {"difference", "difference", OUT_LEFT},
        {"first", "first", OUT_LEFT},        {"second", "second", OUT_LEFT},
        {"elements", "elements", OUT_RIGHT}, {"relative", "relative", OUT_RIGHT},
        {"cosine", "cosine", OUT_RIGHT},     {"max_abs", "largest", OUT_RIGHT},
    };
    int64_t unequal = 0;
    size_t at = 0;

    out_table(o, "differences", columns, 8);
    for (size_t i = 0; i < ckpt_source_count(j->a); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(j->a, i);

        if (!inspect_wants(w, t->name))
            continue;
        if (ckpt_source_find(j->b, t->name) == SIZE_MAX) {
            put_absent(o, t, true);
            unequal++;
        } else {
            unequal += put_pair(o, j, &j->pair[at++]);
        }
    }
    for (size_t k = 0; k < ckpt_source_count(j->b); k++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(j->b, k);

        if (inspect_wants(w, t->name) && ckpt_source_find(j->a, t->name) == SIZE_MAX) {
            put_absent(o, t, false);
            unequal++;
        }
    }
    out_table_end(o);
    return unequal;
}

int inspect_diff(struct out *o, const struct inspect_want *w, struct ckpt_source *a,
                 struct ckpt_source *b, int jobs, bool *differ, struct ckpt_err *err)
{
    size_t workers = jobs ? (size_t)jobs : ckpt_pool_default(16), n = 0;
    struct job j = {.a = a, .b = b};
    int64_t unequal, equal = 0;
    size_t wanted = 0;
    int rc;

    j.pair = ckpt_alloc(ckpt_source_count(a), sizeof *j.pair);
    if (!j.pair)
        return ckpt_nomem(err, ckpt_source_count(a) * sizeof *j.pair);
    for (size_t i = 0; i < ckpt_source_count(a); i++) {
        const char *name = ckpt_source_tensor(a, i)->name;
        size_t k = ckpt_source_find(b, name);

        wanted += inspect_wants(w, name);
        if (k != SIZE_MAX && inspect_wants(w, name))
            j.pair[n++] = (struct pair){.a = i, .b = k};
    }
    for (size_t k = 0; k < ckpt_source_count(b) && wanted == 0; k++)
        wanted += inspect_wants(w, ckpt_source_tensor(b, k)->name);
    rc = inspect_wanted(w, wanted, ckpt_source_count(a) + ckpt_source_count(b), err);
    if (rc == 0 && n)
        rc = ckpt_pool_run(workers, n, diff_one, &j, err);
    if (rc == 0) {
        for (size_t k = 0; k < n; k++)
            equal += ckpt_source_tensor(a, j.pair[k].a)->dtype ==
                         ckpt_source_tensor(b, j.pair[k].b)->dtype &&
                     ckpt_shape_equal(&ckpt_source_tensor(a, j.pair[k].a)->shape,
                                      &ckpt_source_tensor(b, j.pair[k].b)->shape) &&
                     j.pair[k].changed == 0;
        unequal = put_differences(o, w, &j);
        out_int(o, "equal", "equal tensors", equal);
        out_int(o, "unequal", "unequal tensors", unequal);
        *differ = unequal > 0;
    }
    ckpt_free(j.pair);
    return rc;
}
