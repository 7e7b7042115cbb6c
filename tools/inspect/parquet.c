/* parquet - a parquet file: its columns, metadata, row groups, first and last rows; see
 * inspect.h. */
#include <stdio.h>
#include <string.h>

#include "formats/records/parquet/rows.h"
#include "tools/inspect/inspect.h"

/* The names from the root to a leaf, joined with dots. */
static char *path_of(char *dst, size_t size, const struct pq_file *f, size_t leaf)
{
    size_t n = 0;

    *dst = '\0';
    for (size_t i = 1; i <= leaf && n < size - 1; i++)      /* its ancestors' subtrees contain it */
        if (f->node[i].end > leaf)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? "." : "", f->node[i].name);
    return dst;
}

/* The encodings of all row groups by name. */
static char *encodings_of(char *dst, size_t size, uint32_t mask)
{
    size_t n = 0;

    *dst = '\0';
    for (int e = 0; e < 32; e++)
        if (mask >> e & 1 && n < size)
            n += (size_t)snprintf(dst + n, size - n, "%s%s", n ? ", " : "", pq_encoding_name(e));
    return dst;
}

static void put_column(struct out *o, const struct pq_file *f, size_t leaf)
{
    const struct pq_node *n = &f->node[f->leaf[leaf]];
    uint64_t bytes = 0, raw = 0, values = 0;
    const char *codec = "";
    uint32_t encodings = 0;
    char text[1024];

    for (size_t g = 0; g < f->n_group; g++) {
        const struct pq_chunk *c = &f->group[g].chunk[leaf];
        const char *name = pq_codec_name(c->codec);

        bytes += c->bytes;
        raw += c->raw_bytes;
        values += c->values;
        encodings |= c->encodings;
        codec = g == 0 || strcmp(codec, name) == 0 ? name : "several";
    }
    out_cell_str(o, path_of(text, sizeof text, f, f->leaf[leaf]));
    out_cell_str(o, pq_meaning_name(n));
    out_cell_str(o, pq_type_name(n->type));
    out_cell_str(o, n->rep > 0 ? "repeated" : n->def > 0 ? "optional" : "required");
    out_cell_str(o, codec);
    out_cell_str(o, encodings_of(text, sizeof text, encodings));
    out_cell_int(o, (int64_t)values);
    out_cell_bytes(o, bytes);
    out_cell_bytes(o, raw);
}

/* The leaves whose column is selected: by the column's name, or the whole path. */
static void choose(bool *want, const struct inspect_want *w, const struct pq_file *f)
{
    for (size_t i = 1; i < f->n_node; i = f->node[i].end)
        for (size_t k = f->node[i].leaf; k < f->node[i].leaf_end; k++) {
            char path[4096];

            want[k] = inspect_wants(w, f->node[i].name) ||
                      inspect_wants(w, path_of(path, sizeof path, f, f->leaf[k]));
        }
}

static void put_columns(struct out *o, const struct pq_file *f, const bool *want)
{
    static const struct out_column columns[] = {
        {"column", "column", OUT_LEFT},      {"type", "type", OUT_LEFT},
        {"physical", "physical", OUT_LEFT},  {"presence", "presence", OUT_LEFT},
        {"codec", "codec", OUT_LEFT},        {"encodings", "encodings", OUT_LEFT},
        {"values", "values", OUT_RIGHT},     {"bytes", "bytes", OUT_RIGHT},
        {"unpacked_bytes", "unpacked", OUT_RIGHT},
    };

    out_table(o, "columns", columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < f->n_leaf; i++)
        if (want[i])
            put_column(o, f, i);
    out_table_end(o);
}

static void put_groups(struct out *o, const struct pq_file *f)
{
    static const struct out_column columns[] = {
        {"first_row", NULL, OUT_RIGHT}, {"rows", NULL, OUT_RIGHT}, {"bytes", NULL, OUT_RIGHT},
    };

    out_table(o, "row_group_list", columns, 3);
    for (size_t g = 0; g < f->n_group; g++) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < f->n_leaf; i++)
            bytes += f->group[g].chunk[i].bytes;
        out_cell_int(o, f->group[g].first);
        out_cell_int(o, f->group[g].rows);
        out_cell_bytes(o, bytes);
    }
    out_table_end(o);
}

/* The columns that the chosen leaves belong to. */
static int64_t columns_of(const struct pq_file *f, const bool *want)
{
    int64_t n = 0;

    for (size_t i = 1; i < f->n_node; i = f->node[i].end)
        for (size_t k = f->node[i].leaf; k < f->node[i].leaf_end; k++)
            if (want[k]) {
                n++;
                break;
            }
    return n;
}

/* Rows [from, from + n) as a table; for people none where there is no row. */
static int put_rows(struct out *o, const struct pq_file *f, const bool *want, const char *key,
                    bool json, int64_t from, int64_t n, struct ckpt_err *err)
{
    struct ckpt_buf row;
    int rc = 0;

    if (n == 0 && !json)
        return 0;
    inspect_ends_begin(o, key);
    ckpt_buf_init(&row, PQ_MAX_ROW);
    for (size_t g = 0; rc == 0 && g < f->n_group && n > 0; g++) {
        int64_t skip = from - f->group[g].first;
        struct pq_rows *rows;

        if (skip >= f->group[g].rows)
            continue;
        rc = pq_rows_open(&rows, f, g, want, err);
        if (rc == 0)
            rc = pq_rows_skip(rows, skip, err);
        for (; rc == 0 && skip < f->group[g].rows && n > 0; skip++, n--) {
            row.len = 0;
            rc = pq_rows_next(rows, &row, err);
            if (rc == 0)
                inspect_row(o, from++, &row);
        }
        pq_rows_close(rows);
        if (rc)
            ckpt_err_in(err, "row group %zu", g + 1);
    }
    out_table_end(o);
    ckpt_buf_release(&row);
    return rc;
}

/* Read every value of every row. */
static int read_all(const struct pq_file *f, struct ckpt_err *err)
{
    struct ckpt_buf row;
    int rc = 0;

    ckpt_buf_init(&row, PQ_MAX_ROW);
    for (size_t g = 0; rc == 0 && g < f->n_group; g++) {
        struct pq_rows *rows;

        rc = pq_rows_open(&rows, f, g, NULL, err);
        for (int64_t i = 0; rc == 0 && i < f->group[g].rows; i++) {
            row.len = 0;
            rc = pq_rows_next(rows, &row, err);
        }
        if (rc == 0)
            rc = pq_rows_end(rows, err);
        pq_rows_close(rows);
        if (rc)
            ckpt_err_in(err, "row group %zu", g + 1);
    }
    ckpt_buf_release(&row);
    return rc;
}

int inspect_parquet(struct out *o, const struct inspect_want *w, bool json,
                    struct ckpt_file *file, struct ckpt_err *err)
{
    struct inspect_ends ends;
    struct pq_file f;
    bool *want;
    int rc = pq_file_open(&f, file, err);

    if (rc)
        return ckpt_err_in(err, "%s", ckpt_file_name(file));
    want = ckpt_alloc(f.n_leaf + 1, sizeof *want);
    if (!want) {
        pq_file_release(&f);
        return ckpt_nomem(err, f.n_leaf);
    }
    choose(want, w, &f);
    out_str(o, "format", "format", "parquet");
    if (f.created_by)
        out_str(o, "created_by", "created by", f.created_by);
    out_int(o, "rows", "rows", f.rows);
    out_int(o, "row_groups", "row groups", (int64_t)f.n_group);
    out_bytes(o, "bytes", "size", ckpt_file_size(file));
    inspect_metadata(o, json, f.metadata);
    put_columns(o, &f, want);
    if (json)
        put_groups(o, &f);
    ends = inspect_ends(w, f.rows);
    rc = put_rows(o, &f, want, "first_rows", json, 0, ends.first, err);
    if (rc == 0)
        rc = put_rows(o, &f, want, "last_rows", json, ends.from, f.rows - ends.from, err);
    inspect_ends_shape(o, f.rows, columns_of(&f, want));
    if (rc == 0 && w->verify)
        rc = read_all(&f, err);
    if (rc == 0 && w->verify)
        out_str(o, "verified", "verified", "every page unpacks, every value of every row reads");
    if (rc)
        ckpt_err_in(err, "%s", ckpt_file_name(file));
    ckpt_free(want);
    pq_file_release(&f);
    return rc;
}
