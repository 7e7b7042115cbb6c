/* compare - what differs between two checkpoints, tensor by tensor; see inspect.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/inspect/inspect.h"

#define N 4096                  /* elements of a piece */

/*
 * The largest difference of two tensors of one shape: infinite where one is NaN and the other
 * not, or where values have no order and differ.  *changed counts elements.
 */
static int differences(double *most, int64_t *changed, struct ckpt_source *a, size_t i,
                       struct ckpt_source *b, size_t k, struct ckpt_err *err)
{
    enum ckpt_dtype ta = ckpt_source_tensor(a, i)->dtype, tb = ckpt_source_tensor(b, k)->dtype;
    int64_t numel = ckpt_source_tensor(a, i)->numel;
    unsigned char ra[N * 16], rb[N * 16];
    double da[N], db[N];
    bool numbers = ckpt_convert_can(CKPT_F64, ta) && ckpt_convert_can(CKPT_F64, tb);

    *most = 0;
    *changed = 0;
    if (!ckpt_dtype_size(ta) || !ckpt_dtype_size(tb))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "tensor %s: values of %s are not read",
                         ckpt_source_tensor(a, i)->name, ckpt_dtype_name(ta));
    for (int64_t at = 0; at < numel; at += N) {
        int64_t n = numel - at < N ? numel - at : N;

        if (ckpt_source_read(a, i, at, n, ra, err) || ckpt_source_read(b, k, at, n, rb, err))
            return err->code;
        if (ta == tb && memcmp(ra, rb, (size_t)n * ckpt_dtype_size(ta)) == 0)
            continue;
        if (!numbers) {
            *most = INFINITY;
            *changed += n;
            continue;
        }
        ckpt_convert(da, CKPT_F64, ra, ta, (size_t)n);
        ckpt_convert(db, CKPT_F64, rb, tb, (size_t)n);
        for (int64_t j = 0; j < n; j++) {
            bool same = da[j] == db[j] || (isnan(da[j]) && isnan(db[j]));
            double d = same ? 0 : fabs(da[j] - db[j]);

            *changed += d != 0;
            *most = isnan(d) ? INFINITY : fmax(*most, d);
        }
    }
    return 0;
}

static void put(struct out *o, const char *name, const char *what, const char *first,
                const char *second)
{
    out_cell_str(o, name);
    out_cell_str(o, what);
    out_cell_str(o, first);
    out_cell_str(o, second);
}

/* One name of both.  *equal when nothing differs. */
static int compare_one(struct out *o, bool *equal, struct ckpt_source *a, size_t i,
                       struct ckpt_source *b, size_t k, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(a, i), *u = ckpt_source_tensor(b, k);
    char first[256], second[256];
    double most;
    int64_t changed;

    *equal = false;
    if (!ckpt_shape_equal(&t->shape, &u->shape)) {
        put(o, t->name, "shape", ckpt_shape_text(first, sizeof first, &t->shape),
            ckpt_shape_text(second, sizeof second, &u->shape));
        out_cell_none(o);
        out_cell_none(o);
        return 0;
    }
    if (differences(&most, &changed, a, i, b, k, err))
        return err->code;
    *equal = t->dtype == u->dtype && changed == 0;
    if (*equal)
        return 0;
    put(o, t->name, t->dtype == u->dtype ? "values" : "dtype", ckpt_dtype_name(t->dtype),
        ckpt_dtype_name(u->dtype));
    out_cell_int(o, changed);
    out_cell_real(o, most);
    return 0;
}

static void put_absent(struct out *o, const struct ckpt_tensor *t, bool in_first)
{
    char shape[256];

    ckpt_shape_text(shape, sizeof shape, &t->shape);
    put(o, t->name, in_first ? "only in the first" : "only in the second",
        in_first ? shape : "", in_first ? "" : shape);
    out_cell_none(o);
    out_cell_none(o);
}

int inspect_compare(struct out *o, const struct inspect_want *w, struct ckpt_source *a,
                    struct ckpt_source *b, bool *differ, struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"name", "tensor", OUT_LEFT},        {"difference", "difference", OUT_LEFT},
        {"first", "first", OUT_LEFT},        {"second", "second", OUT_LEFT},
        {"elements", "elements", OUT_RIGHT}, {"max_abs", "largest", OUT_RIGHT},
    };
    int64_t equal = 0, unequal = 0;
    bool same;

    out_table(o, "differences", columns, 6);
    for (size_t i = 0; i < ckpt_source_count(a); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(a, i);
        size_t k = ckpt_source_find(b, t->name);

        if (!inspect_wants(w, t->name))
            continue;
        same = false;
        if (k == SIZE_MAX)
            put_absent(o, t, true);
        else if (compare_one(o, &same, a, i, b, k, err))
            return err->code;
        equal += same;
        unequal += !same;
    }
    for (size_t k = 0; k < ckpt_source_count(b); k++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(b, k);

        if (inspect_wants(w, t->name) && ckpt_source_find(a, t->name) == SIZE_MAX) {
            put_absent(o, t, false);
            unequal++;
        }
    }
    out_table_end(o);
    out_int(o, "equal", "equal tensors", equal);
    out_int(o, "unequal", "unequal tensors", unequal);
    *differ = unequal > 0;
    return 0;
}
