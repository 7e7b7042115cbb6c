/*
 * rows - files of records without a schema: JSON lines, text.  Number of rows, fields with their
 * types, first and last rows; numbers by step where rows have a step, as in metrics.jsonl.
 */
#include <stdio.h>
#include <string.h>

#include "formats/logs/metrics_log.h"
#include "formats/records/record.h"
#include "libckpt/base/json.h"
#include "libckpt/base/map.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/plot.h"

#define END_ROWS    5           /* rows of each end, unless --rows says another number */
#define SCHEMA_ROWS 1000        /* rows searched for fields */
#define MAX_FIELDS  10000

struct inspect_ends inspect_ends(const struct inspect_want *w, int64_t rows)
{
    int64_t n = w->rows >= 0 ? w->rows : END_ROWS;
    int64_t first = n < rows ? n : rows;

    return (struct inspect_ends){first, rows - first > n ? rows - n : first};
}

void inspect_ends_begin(struct out *o, const char *key)
{
    static const struct out_column first[] = {{"index", "", OUT_RIGHT},
                                              {"row", "first rows", OUT_LEFT}},
                                   last[] = {{"index", "", OUT_RIGHT},
                                             {"row", "last rows", OUT_LEFT}};

    out_table(o, key, strcmp(key, "last_rows") == 0 ? last : first, 2);
}

void inspect_row(struct out *o, int64_t index, struct ckpt_buf *row)
{
    const char *text = ckpt_buf_str(row);

    out_cell_int(o, index);
    /* A text may contain bytes that JSON cannot: such a row is shown as a text. */
    if (text && ckpt_utf8_valid(text, row->len))
        out_cell_json(o, text);
    else
        out_cell_str(o, text ? text : "");
}

void inspect_ends_shape(struct out *o, int64_t rows, int64_t columns)
{
    char line[80];

    snprintf(line, sizeof line, "[%lld rows x %lld columns]", (long long)rows,
             (long long)columns);
    out_line(o, line);
}

void inspect_metadata(struct out *o, bool json, const json_t *metadata)
{
    static const struct out_column columns[] = {
        {"key", "metadata", OUT_LEFT}, {"value", "value", OUT_WRAP},
    };
    const char *key;
    json_t *v;

    if (json) {
        out_json(o, "metadata", NULL, metadata);
        return;
    }
    if (json_object_size(metadata) == 0)
        return;
    out_table(o, "metadata", columns, 2);
    json_object_foreach ((json_t *)metadata, key, v) {
        out_cell_str(o, key);
        out_cell_str(o, json_string_value(v));
    }
    out_table_end(o);
}

/* A key that rows have. */
struct field {
    char    *name;
    unsigned types;             /* a bit for each json_type */
    int64_t  rows;
};

struct fields {
    struct field    *item;
    size_t           n;
    struct ckpt_map *by_name;
    struct ckpt_arena arena;
};

static int count_field(struct fields *f, const char *name, const json_t *v, struct ckpt_err *err)
{
    size_t at = ckpt_map_get(f->by_name, name, strlen(name));
    int rc;

    if (at == CKPT_MAP_NONE && f->n == MAX_FIELDS)
        return 0;
    if (at == CKPT_MAP_NONE) {
        struct field fresh = {.name = ckpt_arena_strndup(&f->arena, name, strlen(name))};

        if (!fresh.name)
            return ckpt_nomem(err, strlen(name));
        if ((rc = ckpt_map_add(f->by_name, fresh.name, strlen(name), f->n, err)) != 0)
            return rc;
        at = f->n++;
        f->item[at] = fresh;
    }
    f->item[at].types |= 1u << json_typeof(v);
    f->item[at].rows++;
    return 0;
}

/* "string, null" */
static const char *types_of(char *dst, size_t size, unsigned types)
{
    static const char *const names[] = {"object", "list", "string", "integer", "number", "bool",
                                        "bool", "null"};
    size_t n = 0;

    *dst = '\0';
    if (types & 1u << JSON_TRUE)
        types &= ~(1u << JSON_FALSE);
    for (unsigned i = 0; i < 8; i++)
        if (types >> i & 1 && n < size)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? ", " : "", names[i]);
    return dst;
}

static void put_fields(struct out *o, const struct inspect_want *w, const struct fields *f)
{
    static const struct out_column columns[] = {
        {"field", "field", OUT_LEFT}, {"types", "types", OUT_LEFT}, {"rows", "rows", OUT_RIGHT},
    };
    char text[100];

    out_table(o, "fields", columns, 3);
    for (size_t i = 0; i < f->n; i++)
        if (inspect_wants(w, f->item[i].name)) {
            out_cell_str(o, f->item[i].name);
            out_cell_str(o, types_of(text, sizeof text, f->item[i].types));
            out_cell_int(o, f->item[i].rows);
        }
    out_table_end(o);
}

static int read_fields(struct fields *f, struct records *r, int64_t n, struct ckpt_err *err)
{
    int rc = ckpt_map_new(&f->by_name, 64, err);

    f->item = ckpt_alloc(MAX_FIELDS, sizeof *f->item);
    if (rc == 0 && !f->item)
        rc = ckpt_nomem(err, MAX_FIELDS * sizeof *f->item);
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        const char *key;
        json_t *row, *v;

        rc = records_get(r, i, &row, err);
        if (rc)
            break;
        json_object_foreach (row, key, v)
            if (rc == 0)
                rc = count_field(f, key, v, err);
        json_decref(row);
    }
    return rc;
}

/* Rows [from, to) as a table; for people none where there is no row. */
static int put_rows(struct out *o, const char *key, bool json, struct records *r, int64_t from,
                    int64_t to, struct ckpt_err *err)
{
    int rc = 0;

    if (from == to && !json)
        return 0;
    inspect_ends_begin(o, key);
    for (int64_t i = from; rc == 0 && i < to; i++) {
        struct ckpt_buf text;
        json_t *row;

        rc = records_get(r, i, &row, err);
        if (rc)
            break;
        ckpt_buf_init(&text, SIZE_MAX);
        rc = ckpt_json_write(&text, row, 0, false, err);
        if (rc == 0)
            inspect_row(o, i, &text);
        ckpt_buf_release(&text);
        json_decref(row);
    }
    out_table_end(o);
    return rc;
}

/* The number of fields that are wanted. */
static int64_t columns_of(const struct inspect_want *w, const struct fields *f)
{
    int64_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += inspect_wants(w, f->item[i].name);
    return n;
}

static int put_ends(struct out *o, const struct inspect_want *w, bool json,
                    const struct fields *f, struct records *r, struct ckpt_err *err)
{
    struct inspect_ends ends = inspect_ends(w, records_count(r));
    int rc = put_rows(o, "first_rows", json, r, 0, ends.first, err);

    if (rc == 0)
        rc = put_rows(o, "last_rows", json, r, ends.from, records_count(r), err);
    if (rc == 0)
        inspect_ends_shape(o, records_count(r), columns_of(w, f));
    return rc;
}

/* The numbers of one key, for the plot. */
struct track {
    const json_t *rows;
    const char   *key;
};

static bool point(const void *ctx, size_t i, double *step, double *value)
{
    const struct track *t = ctx;
    const json_t *row = json_array_get(t->rows, i), *s = json_object_get(row, "step"),
                 *v = json_object_get(row, t->key);

    *step = json_number_value(s);
    *value = json_number_value(v);
    return json_is_number(s) && json_is_number(v);
}

/* The rows of the newest run; json_decref them. */
static int newest_rows(json_t **out, struct records *r, struct ckpt_err *err)
{
    json_t *rows = json_array();
    int rc = rows ? 0 : ckpt_nomem(err, 64);

    for (int64_t i = 0; rc == 0 && i < records_count(r); i++) {
        json_t *row;

        rc = records_get(r, i, &row, err);
        if (rc == 0 && json_array_append_new(rows, row))
            rc = ckpt_nomem(err, 64);
    }
    if (rc == 0)
        rc = metrics_log_newest(rows, err);
    *out = rows;
    return rc;
}

static int plot(struct out *o, const struct inspect_want *w, const struct fields *f,
                struct records *r, struct ckpt_err *err)
{
    struct track t = {0};
    json_t *rows;
    bool any = false;
    int rc = newest_rows(&rows, r, err);

    t.rows = rows;
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        t.key = f->item[i].name;
        if (strcmp(t.key, "step") != 0 && inspect_wants(w, t.key))
            any |= plot_draw(o, t.key, json_array_size(t.rows), point, &t);
    }
    json_decref(rows);
    return rc || any ? rc : ckpt_fail(err, CKPT_ENOTFOUND, "--plot: no rows with \"step\" and "
                                      "numbers of two steps");
}

/* Curves of rows with a step, for a page. */
static int gather(const struct inspect_want *w, const struct fields *f, struct records *r,
                  struct ckpt_err *err)
{
    json_t *rows = NULL;
    int rc = 0;

    if (ckpt_map_get(f->by_name, "step", 4) == CKPT_MAP_NONE)
        return 0;
    rc = newest_rows(&rows, r, err);
    if (rc == 0)
        rc = inspect_gather_rows(w->curves, NULL, rows, err);
    json_decref(rows);
    return rc;
}

/* Check that every row can be read. */
static int read_all(struct records *r, struct ckpt_err *err)
{
    int rc = 0;

    for (int64_t i = 0; rc == 0 && i < records_count(r); i++) {
        json_t *row = NULL;

        rc = records_get(r, i, &row, err);
        json_decref(row);
    }
    return rc;
}

int inspect_rows(struct out *o, const struct inspect_want *w, bool json, const char *path,
                 struct ckpt_err *err)
{
    struct fields f = {0};
    struct records *r;
    int64_t n;
    int rc = records_open(&r, &path, 1, err);

    if (rc)
        return rc;
    n = records_count(r) < SCHEMA_ROWS ? records_count(r) : SCHEMA_ROWS;
    rc = read_fields(&f, r, n, err);
    if (rc == 0) {
        out_str(o, "format", "format", records_format(r));
        out_int(o, "rows", "rows", records_count(r));
        if (n < records_count(r) || json)
            out_int(o, "rows_looked_at", "rows looked at for fields", n);
        if (records_metadata(r))
            inspect_metadata(o, json, records_metadata(r));
    }
    if (rc == 0 && w->plot && !json) {
        rc = plot(o, w, &f, r, err);
    } else if (rc == 0) {
        put_fields(o, w, &f);
        rc = put_ends(o, w, json, &f, r, err);
        if (rc == 0 && w->curves)
            rc = gather(w, &f, r, err);
    }
    if (rc == 0 && w->verify)
        rc = read_all(r, err);
    if (rc == 0 && w->verify)
        out_str(o, "verified", "verified", "every row reads");
    records_close(r);
    ckpt_map_free(f.by_name);
    ckpt_arena_release(&f.arena);
    ckpt_free(f.item);
    return rc;
}
