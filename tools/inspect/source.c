/* source - a checkpoint's facts, totals and tensors; see inspect.h. */
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/quant/quant.h"
#include "formats/bnb/bnb.h"
#include "tools/inspect/inspect.h"
#include "tools/near.h"

#define HEAD 16                 /* values shown of a tensor */

bool inspect_wants(const struct inspect_want *w, const char *name)
{
    for (size_t i = 0; i < w->glob.n; i++)
        if (fnmatch(w->glob.item[i], name, 0) == 0)
            return true;
    return w->glob.n == 0;
}

int inspect_wanted(const struct inspect_want *w, size_t n, size_t count, struct ckpt_err *err)
{
    return n || count == 0 || w->glob.n == 0
               ? 0
               : ckpt_fail(err, CKPT_ENOTFOUND, "no tensor matches %s%s", w->glob.item[0],
                           w->glob.n > 1 ? ", nor another --glob" : "");
}

/* What a format was recognised by. */
static const char *evidence(const struct ckpt_source *src)
{
    static const struct { const char *format, *what; } rows[] = {
        {"safetensors", "a JSON header of tensors, its length in front"},
        {"hf", "weights under the names transformers gives them"},
        {"torch", "a torch archive or stream, its pickle in it"},
        {"deepspeed", "mp_rank files of a tag"},
        {"peft", "adapter_config.json beside adapter weights"},
        {"dcp", ".metadata beside .distcp files"},
        {"gguf", "the letters GGUF in front"},
    };
    const char *format = json_string_value(json_object_get(ckpt_source_info(src), "format"));

    for (size_t i = 0; format && i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].format, format) == 0)
            return rows[i].what;
    return NULL;
}

/* Short facts; --tree shows the trees. */
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

#define MAX_TYPES (CKPT_DTYPE_COUNT + 64)   /* dtypes, and blocks of all formats */

/* A stored type, and how much of it there is. */
struct total {
    const char *name;
    int64_t     tensors, elements;
    uint64_t    bytes;
};

/* Dtypes are at their own indices, block types after them in order of appearance. */
static void add_total(struct total *all, const struct ckpt_tensor *t)
{
    struct total *x = &all[t->dtype];

    if (t->stored)
        for (x = all + CKPT_DTYPE_COUNT; x->name && x < all + MAX_TYPES - 1; x++)
            if (strcmp(x->name, t->stored) == 0)
                break;
    x->name = ckpt_tensor_stored(t);
    x->tensors++;
    x->elements += t->numel;
    x->bytes += ckpt_tensor_stored_bytes(t);
}

int inspect_open_values(struct ckpt_source **out, const char *path,
                        const struct ckpt_open_opts *opts, struct ckpt_err *err)
{
    struct ckpt_source *below;
    int rc = ckpt_open(&below, path, opts, err);

    *out = NULL;
    if (rc == 0)
        rc = quant_view(out, below, err);
    return rc ? ckpt_err_in(err, "%s", path) : 0;
}

static int put_packed(struct out *o, const struct ckpt_source *src, struct ckpt_err *err);

int inspect_see_values(struct out *o, struct ckpt_source **src, const char *tensor,
                       struct ckpt_err *err)
{
    struct ckpt_source *below = *src;
    struct quant_told told;
    int rc = quant_tell(&told, below, err);

    if (rc || told.n == 0)
        return rc;
    if (tensor && ckpt_source_find(below, tensor) != SIZE_MAX &&
        !quant_is_packed(below, ckpt_source_find(below, tensor)))
        return 0;                       /* a scale, a norm: not quantised itself */
    if ((rc = put_packed(o, below, err)) != 0)
        return rc;
    *src = NULL;
    return quant_view(src, below, err);
}

/* Report whether a library has quantised some tensors. */
static int put_packed(struct out *o, const struct ckpt_source *src, struct ckpt_err *err)
{
    struct quant_told told;
    char text[192];
    const char *what;
    int rc = quant_tell(&told, src, err);

    if (rc || told.n == 0)
        return rc;
    bnb_count(src, &what);
    snprintf(text, sizeof text, "%zu tensors, %s%s", told.n, what ? what : told.what,
             told.is_read ? "" : ", which is not read");
    if (what)
        out_str(o, "bitsandbytes", "packed by bitsandbytes", text);
    else
        out_str(o, "quantization", "quantised", text);
    return 0;
}

/* Parameters and bytes by stored type, tied names once. */
static void put_totals(struct out *o, const struct ckpt_source *src)
{
    static const struct out_column columns[] = {
        {"dtype", "dtype", OUT_LEFT},       {"tensors", "tensors", OUT_RIGHT},
        {"elements", "elements", OUT_RIGHT}, {"bytes", "bytes", OUT_RIGHT},
    };
    struct total all[MAX_TYPES] = {0};
    int64_t tied = 0, parameters = 0;
    uint64_t total = 0;

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const struct ckpt_tensor *t = ckpt_source_tensor(src, i);

        tied += t->alias_of != i;
        if (t->alias_of != i)
            continue;
        add_total(all, t);
        total += ckpt_tensor_stored_bytes(t);
        parameters += t->kind == CKPT_WEIGHT ? t->numel : 0;
    }
    out_int(o, "tensors", "tensors", (int64_t)ckpt_source_count(src));
    if (tied)
        out_int(o, "tied", "of them tied to another", tied);
    out_int(o, "parameters", "parameters", parameters);
    out_bytes(o, "bytes", "bytes", total);
    out_table(o, "dtypes", columns, 4);
    for (size_t k = 0; k < MAX_TYPES; k++)
        if (all[k].tensors) {
            out_cell_str(o, all[k].name);
            out_cell_int(o, all[k].tensors);
            out_cell_int(o, all[k].elements);
            out_cell_bytes(o, all[k].bytes);
        }
    out_table_end(o);
}

static const char *file_of(const struct ckpt_tensor *t)
{
    const char *name = t->n_frag ? ckpt_file_name(t->frag[0].file) : "", *slash;

    slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

/* Squares of huge values may not be finite. */
static void put_real(struct out *o, bool there, double v)
{
    out_cell_known(o, there && isfinite(v) ? v : NAN);
}

static void put_stats(struct out *o, const struct tensor_measure *m)
{
    char spark[MEASURE_BINS * 3 + 1], json[512];
    bool some = m->s.n > 0;

    put_real(o, some, m->s.min);
    put_real(o, some, m->s.max);
    put_real(o, some, m->s.mean);
    put_real(o, some, stats_std(&m->s));
    put_real(o, some, (double)m->s.n_zero / (double)(some ? m->s.n : 1));
    for (size_t k = 0; k < 2; k++)
        if (m->numbers)
            out_cell_int(o, k ? m->s.n_inf : m->s.n_nan);
        else
            out_cell_none(o);
    if (m->hist_high > m->hist_low)
        out_cell_pair(o, inspect_measure_spark(spark, m), inspect_measure_histogram(json, m));
    else
        out_cell_none(o);
}

static void put_row(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                    size_t i, const struct tensor_measure *m)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    char shape[256];

    out_cell_str(o, t->name);
    out_cell_str(o, ckpt_tensor_stored(t));
    out_cell_json(o, ckpt_shape_text(shape, sizeof shape, &t->shape));
    out_cell_bytes(o, ckpt_tensor_stored_bytes(t));
    out_cell_int(o, (int64_t)t->n_frag);
    out_cell_str(o, t->alias_of != i ? ckpt_source_tensor(src, t->alias_of)->name : file_of(t));
    if (w->stats)
        put_stats(o, m);
    if (w->digest && m->sha256[0])
        out_cell_str(o, m->sha256);
    else if (w->digest)
        out_cell_none(o);
}

static void put_tensors(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                        const size_t *index, size_t n, const struct tensor_measure *m)
{
    struct out_column columns[16] = {
        {"name", "tensor", OUT_LEFT},  {"dtype", "dtype", OUT_LEFT},
        {"shape", "shape", OUT_LEFT},  {"bytes", "bytes", OUT_RIGHT},
        {"pieces", "pieces", OUT_RIGHT}, {"file", "file", OUT_LEFT},
    };
    static const struct out_column stats[] = {
        {"min", "min", OUT_RIGHT}, {"max", "max", OUT_RIGHT}, {"mean", "mean", OUT_RIGHT},
        {"std", "std", OUT_RIGHT}, {"zero_share", "zeros", OUT_RIGHT},
        {"nan", "NaN", OUT_RIGHT}, {"inf", "infinite", OUT_RIGHT},
        {"histogram", "histogram", OUT_LEFT},
    };
    size_t n_column = 6;

    for (size_t k = 0; w->stats && k < sizeof stats / sizeof stats[0]; k++)
        columns[n_column++] = stats[k];
    if (w->digest)
        columns[n_column++] = (struct out_column){"sha256", "sha-256", OUT_LEFT};
    out_table(o, "tensor_list", columns, n_column);
    for (size_t k = 0; k < n; k++)
        put_row(o, w, src, index[k], m ? &m[k] : NULL);
    out_table_end(o);
}

int inspect_source(struct out *o, const struct inspect_want *w, struct ckpt_source *src,
                   int jobs, struct ckpt_err *err)
{
    unsigned what = (w->stats ? INSPECT_STATS : 0) | (w->digest ? INSPECT_DIGEST : 0);
    size_t count = ckpt_source_count(src), n = 0;
    size_t *index = ckpt_alloc(count + 1, sizeof *index);
    struct tensor_measure *m = what ? ckpt_alloc(count + 1, sizeof *m) : NULL;
    int rc = index && (m || !what) ? 0 : ckpt_nomem(err, count * sizeof *m);

    for (size_t i = 0; rc == 0 && i < count; i++)
        if (inspect_wants(w, ckpt_source_tensor(src, i)->name))
            index[n++] = i;
    if (rc == 0)
        rc = inspect_wanted(w, n, count, err);
    if (rc == 0 && what)
        rc = inspect_measure(m, src, index, n, what, jobs, err);
    if (rc == 0) {
        const char *format = json_string_value(json_object_get(ckpt_source_info(src), "format"));

        out_str(o, "format", "format", format ? format : ckpt_source_format(src));
        if (evidence(src))
            out_str(o, "evidence", "known by", evidence(src));
        put_facts(o, src);
        rc = put_packed(o, src, err);
    }
    if (rc == 0) {
        put_totals(o, src);
        put_tensors(o, w, src, index, n, m);
    }
    ckpt_free(index);
    ckpt_free(m);
    return rc;
}

/* The first values, as numbers. */
static int put_head(struct out *o, struct ckpt_source *src, size_t i, struct ckpt_err *err)
{
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    int64_t n = t->numel < HEAD ? t->numel : HEAD;
    unsigned char raw[HEAD * 16];
    double head[HEAD];
    json_t *values;
    int rc;

    if (n && (rc = ckpt_source_read(src, i, 0, n, raw, err)) != 0)
        return rc;
    ckpt_convert(head, CKPT_F64, raw, t->dtype, (size_t)n);
    values = json_array();
    for (int64_t k = 0; k < n; k++)
        json_array_append_new(values, isfinite(head[k]) ? json_real(head[k])
                                      : json_string(isnan(head[k]) ? "NaN"
                                                    : head[k] > 0 ? "Infinity" : "-Infinity"));
    out_json(o, "head", "first values", values);
    json_decref(values);
    return 0;
}

#define LOOKED_AT 50000         /* tensors whose names are compared letter by letter */

/* Add a hint to err: the name that ends in `name`, as "transformer.ln_f.weight" for
 * "ln_f.weight", or the most similar one. */
static int hint_nearest(const struct ckpt_source *src, const char *name, struct ckpt_err *err)
{
    size_t n = strlen(name), least = n / 4 + 2;
    const char *near = NULL, *end = NULL;

    for (size_t i = 0; i < ckpt_source_count(src); i++) {
        const char *other = ckpt_source_tensor(src, i)->name;
        size_t k = strlen(other), d = i < LOOKED_AT ? near_edits(name, n, other) : SIZE_MAX;

        if (k > n && other[k - n - 1] == '.' && strcmp(other + k - n, name) == 0 &&
            (!end || k < strlen(end)))
            end = other;
        if (d < least) {
            least = d;
            near = other;
        }
    }
    if (end || near)
        return ckpt_err_hint(err, "did you mean %.200s?", end ? end : near);
    return ckpt_err_code(err);
}

int inspect_tensor(struct out *o, struct ckpt_source *src, const char *name,
                   struct ckpt_err *err)
{
    size_t i = ckpt_source_find(src, name);
    const struct ckpt_tensor *t = ckpt_source_tensor(src, i);
    struct tensor_measure m;
    char shape[256], spark[MEASURE_BINS * 3 + 1];
    int rc;

    if (!t) {
        ckpt_fail(err, CKPT_ENOTFOUND, "tensor %s: absent", name);
        return hint_nearest(src, name, err);
    }
    if ((rc = inspect_measure(&m, src, &i, 1, INSPECT_STATS | INSPECT_DIGEST, 0, err)) != 0)
        return rc;
    out_str(o, "name", "tensor", t->name);
    out_str(o, "dtype", "dtype", ckpt_tensor_stored(t));
    out_str(o, "shape", "shape", ckpt_shape_text(shape, sizeof shape, &t->shape));
    out_bytes(o, "bytes", "bytes", ckpt_tensor_stored_bytes(t));
    if (t->unread)
        out_str(o, "unread", "values", t->unread);
    if (m.s.n) {
        out_real(o, "min", "min", m.s.min);
        out_real(o, "max", "max", m.s.max);
        out_real(o, "mean", "mean", m.s.mean);
        out_real(o, "std", "std", stats_std(&m.s));
        out_real(o, "zero_share", "zeros", (double)m.s.n_zero / (double)m.s.n);
    }
    if (m.numbers) {
        out_int(o, "nan", "NaN", m.s.n_nan);
        out_int(o, "inf", "infinite", m.s.n_inf);
    }
    if (m.hist_high > m.hist_low)
        out_str(o, "histogram", "histogram", inspect_measure_spark(spark, &m));
    if (m.sha256[0])
        out_str(o, "sha256", "sha-256", m.sha256);
    return m.numbers ? put_head(o, src, i, err) : 0;
}
