/* source - a checkpoint's facts, totals and tensors; see inspect.h. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/inspect/inspect.h"

#define HEAD 16                 /* values of a tensor that are shown */

bool inspect_wants(const struct inspect_want *w, const char *name)
{
    for (size_t i = 0; i < w->glob.n; i++)
        if (fnmatch(w->glob.item[i], name, 0) == 0)
            return true;
    return w->glob.n == 0;
}

/* Facts that are short; trees are for --tree. */
static void put_facts(struct out *o, const struct ckpt_source *src)
{
    const char *key;
    json_t *v;

    json_object_foreach ((json_t *)ckpt_source_info(src), key, v) {
        if (strcmp(key, "format") == 0)
            continue;
        if (json_is_string(v))
            out_str(o, key, key, json_string_value(v));
        else if (json_is_integer(v))
            out_int(o, key, key, json_integer_value(v));
        else if (json_is_real(v))
            out_real(o, key, key, json_real_value(v));
        else
            out_json(o, key, NULL, v);  /* in JSON only */
    }
}

/* Parameters and bytes by dtype, tied names once. */
static void put_totals(struct out *o, const struct ckpt_source *src)
{
    static const struct out_column columns[] = {
        {"dtype", "dtype", OUT_LEFT},       {"tensors", "tensors", OUT_RIGHT},
        {"elements", "elements", OUT_RIGHT}, {"bytes", "bytes", OUT_RIGHT},
    };
    int64_t tensors[CKPT_DTYPE_COUNT] = {0}, elements[CKPT_DTYPE_COUNT] = {0}, parameters = 0;
    uint64_t bytes[CKPT_DTYPE_COUNT] = {0}, total = 0;
    int64_t tied = 0;

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

        tied += t->alias_of != i;
        if (t->alias_of != i)
            continue;
        tensors[t->dtype]++;
        elements[t->dtype] += t->numel;
        bytes[t->dtype] += ckpt_tensor_bytes(t);
        total += ckpt_tensor_bytes(t);
        parameters += t->kind == CKPT_WEIGHT ? t->numel : 0;
    }
    out_int(o, "tensors", "tensors", (int64_t)ckpt_source_count(src));
    if (tied)
        out_int(o, "tied", "of them tied to another", tied);
    out_int(o, "parameters", "parameters", parameters);
    out_bytes(o, "bytes", "bytes", total);
    out_table(o, "dtypes", columns, 4);
    for (int d = 1; d < CKPT_DTYPE_COUNT; d++)
        if (tensors[d]) {
            out_cell_str(o, ckpt_dtype_name((enum ckpt_dtype)d));
            out_cell_int(o, tensors[d]);
            out_cell_int(o, elements[d]);
            out_cell_bytes(o, bytes[d]);
        }
    out_table_end(o);
}

static const char *file_of(const struct ckpt_tensor *t)
{
    const char *name = t->n_frag ? ckpt_file_name(t->frag[0].file) : "", *slash;

    slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static int put_measures(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                        size_t i, struct ckpt_err *err)
{
    struct tensor_stats s;
    char hex[CKPT_SHA256_HEX];

    if (w->stats) {
        if (tensor_stats(&s, src, i, err))
            return err->code;
        out_cell_real(o, s.min);
        out_cell_real(o, s.max);
        out_cell_real(o, s.mean);
        out_cell_real(o, s.std);
        out_cell_int(o, s.n_nan + s.n_inf);
    }
    if (w->digest) {
        if (tensor_digest(hex, src, i, err))
            return err->code;
        out_cell_str(o, hex);
    }
    return 0;
}

static int put_tensors(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                       struct ckpt_err *err)
{
    struct out_column columns[16] = {
        {"name", "tensor", OUT_LEFT},  {"dtype", "dtype", OUT_LEFT}, {"shape", "shape", OUT_LEFT},
        {"bytes", "bytes", OUT_RIGHT}, {"pieces", "pieces", OUT_RIGHT}, {"file", "file", OUT_LEFT},
    };
    static const struct out_column stats[] = {
        {"min", "min", OUT_RIGHT}, {"max", "max", OUT_RIGHT},   {"mean", "mean", OUT_RIGHT},
        {"std", "std", OUT_RIGHT}, {"non_finite", "non-finite", OUT_RIGHT},
    };
    size_t n = 6;

    for (size_t k = 0; w->stats && k < 5; k++)
        columns[n++] = stats[k];
    if (w->digest)
        columns[n++] = (struct out_column){"sha256", "sha-256", OUT_LEFT};
    out_table(o, "tensor_list", columns, n);
    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
        char shape[256];

        if (!inspect_wants(w, t->name))
            continue;
        out_cell_str(o, t->name);
        out_cell_str(o, ckpt_dtype_name(t->dtype));
        out_cell_json(o, ckpt_shape_text(shape, sizeof shape, &t->shape));
        out_cell_bytes(o, ckpt_tensor_bytes(t));
        out_cell_int(o, (int64_t)t->n_frag);
        out_cell_str(o, t->alias_of != i ? ckpt_source_tensor(src, t->alias_of)->name
                                         : file_of(t));
        if (put_measures(o, w, src, i, err))
            return err->code;
    }
    out_table_end(o);
    return 0;
}

int inspect_source(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                   struct ckpt_err *err)
{
    out_str(o, "format", "format", ckpt_source_format(src));
    put_facts(o, src);
    put_totals(o, src);
    return put_tensors(o, w, src, err);
}

int inspect_tensor(struct out *o, struct ckpt_source *src, const char *name,
                   struct ckpt_err *err)
{
    size_t i = ckpt_source_find(src, name);
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    unsigned char raw[HEAD * 16];
    struct tensor_stats s;
    double head[HEAD];
    json_t *values;
    char shape[256];
    int64_t n;

    if (!t)
        return ckpt_fail(err, CKPT_ENOTFOUND, "tensor %s: absent", name);
    n = t->numel < HEAD ? t->numel : HEAD;
    if (tensor_stats(&s, src, i, err) || ckpt_source_read(src, i, 0, n, raw, err))
        return err->code;
    ckpt_convert(head, CKPT_F64, raw, t->dtype, (size_t)n);
    out_str(o, "name", "tensor", t->name);
    out_str(o, "dtype", "dtype", ckpt_dtype_name(t->dtype));
    out_str(o, "shape", "shape", ckpt_shape_text(shape, sizeof shape, &t->shape));
    out_real(o, "min", "min", s.min);
    out_real(o, "max", "max", s.max);
    out_real(o, "mean", "mean", s.mean);
    out_real(o, "std", "std", s.std);
    out_int(o, "nan", "NaN", s.n_nan);
    out_int(o, "inf", "infinite", s.n_inf);
    values = json_array();
    for (int64_t k = 0; k < n; k++)
        json_array_append_new(values, isfinite(head[k]) ? json_real(head[k]) : json_null());
    out_json(o, "head", "first values", values);
    json_decref(values);
    return 0;
}

/* The largest difference of two tensors, in pieces. */
static int max_difference(double *most, struct ckpt_source *a, size_t i, struct ckpt_source *b,
                          size_t k, struct ckpt_err *err)
{
    enum { N = 4096 };
    const struct ckpt_tensor *t = ckpt_source_tensor(a, i);
    unsigned char ra[N * 16], rb[N * 16];
    double da[N], db[N];

    *most = 0;
    for (int64_t at = 0; at < t->numel; at += N) {
        int64_t n = t->numel - at < N ? t->numel - at : N;

        if (ckpt_source_read(a, i, at, n, ra, err) || ckpt_source_read(b, k, at, n, rb, err))
            return err->code;
        if (memcmp(ra, rb, (size_t)n * ckpt_dtype_size(t->dtype)) == 0)
            continue;
        if (!ckpt_convert_can(CKPT_F64, t->dtype)) {
            *most = INFINITY;
            return 0;
        }
        ckpt_convert(da, CKPT_F64, ra, t->dtype, (size_t)n);
        ckpt_convert(db, CKPT_F64, rb, t->dtype, (size_t)n);
        for (int64_t j = 0; j < n; j++) {
            double d = fabs(da[j] - db[j]);

            *most = d > *most || isnan(d) ? (isnan(d) ? INFINITY : d) : *most;
        }
    }
    return 0;
}

static void difference(struct out *o, const char *name, const char *what, double most)
{
    out_cell_str(o, name);
    out_cell_str(o, what);
    out_cell_real(o, isfinite(most) ? most : -1);
}

int inspect_compare(struct out *o, struct ckpt_source *a, struct ckpt_source *b, bool *differ,
                    struct ckpt_err *err)
{
    static const struct out_column columns[] = {
        {"name", "tensor", OUT_LEFT}, {"difference", "difference", OUT_LEFT},
        {"max_abs", "largest", OUT_RIGHT},
    };
    int64_t equal = 0;

    *differ = false;
    out_table(o, "differences", columns, 3);
    for (size_t i = 0; i < ckpt_source_count(a); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(a, i), *u;
        size_t k = ckpt_source_find(b, t->name);
        double most = 0;

        u = ckpt_source_tensor(b, k);
        if (u && u->dtype == t->dtype && ckpt_shape_equal(&t->shape, &u->shape) &&
            max_difference(&most, a, i, b, k, err))
            return err->code;
        if (!u)
            difference(o, t->name, "only in the first", 0);
        else if (u->dtype != t->dtype)
            difference(o, t->name, "dtype", 0);
        else if (!ckpt_shape_equal(&t->shape, &u->shape))
            difference(o, t->name, "shape", 0);
        else if (most > 0)
            difference(o, t->name, "values", most);
        else
            equal++;
    }
    *differ = equal < (int64_t)ckpt_source_count(a);
    for (size_t k = 0; k < ckpt_source_count(b); k++)
        if (ckpt_source_find(a, ckpt_source_tensor(b, k)->name) == SIZE_MAX) {
            difference(o, ckpt_source_tensor(b, k)->name, "only in the second", 0);
            *differ = true;
        }
    out_table_end(o);
    out_int(o, "equal", "equal tensors", equal);
    return 0;
}
