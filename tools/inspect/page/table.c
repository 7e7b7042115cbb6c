/* table - see table.h. */
#include "tools/inspect/page/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/mem.h"
#include "tools/inspect/page/text.h"

#define SCHEMA_ROWS 200         /* rows searched for keys */
#define JSON_BYTES  20000       /* of a folded value */

static const struct {
    const char *key, *title;
} titles[] = {
    {"tensor_list", "Tensors"},     {"parts", "Files"},
    {"dtypes", "Types"},            {"log", "Log"},
    {"tags", "Logged tags"},        {"runs", "Runs side by side"},
    {"settings", "Settings that differ"}, {"differences", "Tensors that differ"},
    {"arguments", "Arguments"},     {"config", "Model configuration"},
    {"manifest", "Manifest"},       {"optimizer_groups", "Parameter groups"},
    {"results", "Results"},         {"samples", "Samples"},
};

static void put_title(struct ckpt_buf *b, const char *key)
{
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
        if (strcmp(titles[i].key, key) == 0) {
            page_text(b, titles[i].title, 0);
            return;
        }
    page_words(b, key);
}

/* Put the heading of a section that folds; close it with "</details>". */
static void put_section(struct ckpt_buf *b, const char *key, size_t count, bool open)
{
    char number[PAGE_NUMBER];

    ckpt_buf_printf(b, "<details%s>\n<summary><h2>", open ? " open=\"\"" : "");
    put_title(b, key);
    ckpt_buf_put_str(b, "</h2>");
    if (count)
        ckpt_buf_printf(b, " <small>%s</small>", page_number(number, (double)count, 7));
    ckpt_buf_put_str(b, "</summary>\n");
}

void page_json(struct ckpt_buf *b, const char *key, const json_t *v)
{
    put_section(b, key, 0, false);
    ckpt_buf_put_str(b, "<pre>");
    page_value(b, key, v, JSON_BYTES);
    ckpt_buf_put_str(b, "</pre>\n</details>\n");
}

bool page_is_table(const json_t *v)
{
    return json_array_size(v) > 0 && json_is_object(json_array_get(v, 0));
}

/* -- columns --------------------------------------------------------------------------------- */

struct columns {
    const char *key[TABLE_MAX_COLUMNS];
    bool        number[TABLE_MAX_COLUMNS];      /* a row has a number there */
    size_t      n;
};

static void add_column(struct columns *c, const char *key, const json_t *v)
{
    size_t i = 0;

    if (json_is_null(v) || (json_is_string(v) && !*json_string_value(v)))
        return;
    while (i < c->n && strcmp(c->key[i], key) != 0)
        i++;
    if (i == TABLE_MAX_COLUMNS)
        return;
    if (i == c->n) {
        c->key[c->n] = key;
        c->number[c->n++] = false;
    }
    c->number[i] |= json_is_number(v);
}

/* Keys in the order of the first row that has them all; a key without any value is left out. */
static void columns_of(struct columns *c, const json_t *rows)
{
    struct columns valued = {.n = 0};
    const char *key;
    json_t *row, *v;
    size_t i;

    json_array_foreach ((json_t *)rows, i, row)
        json_object_foreach (row, key, v)
            if (i < SCHEMA_ROWS || json_array_size(rows) <= TABLE_MAX_ROWS)
                add_column(&valued, key, v);
    c->n = 0;
    json_object_foreach (json_array_get(rows, 0), key, v)
        for (i = 0; i < valued.n; i++)
            if (strcmp(valued.key[i], key) == 0) {
                c->key[c->n] = key;
                c->number[c->n++] = valued.number[i];
                valued.key[i] = "";
            }
    for (i = 0; i < valued.n; i++)
        if (*valued.key[i]) {
            c->key[c->n] = valued.key[i];
            c->number[c->n++] = valued.number[i];
        }
}

/* -- cells ----------------------------------------------------------------------------------- */

#define HISTOGRAM_BINS 64

static void put_histogram(struct ckpt_buf *b, const json_t *v)
{
    const json_t *counts = json_object_get(v, "counts"), *count;
    size_t n = json_array_size(counts), i;
    double most = 1;
    char low[PAGE_NUMBER], high[PAGE_NUMBER];

    json_array_foreach ((json_t *)counts, i, count)
        most = fmax(most, json_number_value(count));
    ckpt_buf_printf(b, "<svg class=\"bins\" role=\"img\" width=\"96\" height=\"20\" viewBox=\"0 0 "
                    "%zu 20\" preserveAspectRatio=\"none\"><title>%s to %s</title>", n,
                    page_number(low, json_number_value(json_object_get(v, "low")), 4),
                    page_number(high, json_number_value(json_object_get(v, "high")), 4));
    json_array_foreach ((json_t *)counts, i, count) {
        double y = ceil(20 * json_number_value(count) / most);

        if (y > 0 && i < HISTOGRAM_BINS)
            ckpt_buf_printf(b, "<rect x=\"%zu\" y=\"%.0f\" width=\".8\" height=\"%.0f\"/>", i,
                            20 - y, y);
    }
    ckpt_buf_put_str(b, "</svg>");
}

static void put_cell(struct ckpt_buf *b, const char *key, const json_t *v, bool number)
{
    if (json_is_object(v) && json_is_array(json_object_get(v, "counts"))) {
        ckpt_buf_put_str(b, "<td>");
        put_histogram(b, v);
    } else if (json_is_number(v)) {
        ckpt_buf_printf(b, "<td class=\"n\" data-v=\"%.9g\">", json_number_value(v));
        page_value(b, key, v, TABLE_CELL_BYTES);
    } else {
        bool is_long = json_is_string(v) && json_string_length(v) > 70;

        ckpt_buf_put_str(b, number ? "<td class=\"n\">" : is_long ? "<td class=\"long\">" : "<td>");
        page_value(b, key, v, TABLE_CELL_BYTES);
    }
    ckpt_buf_put_str(b, "</td>");
}

/* How much of the whole bar a difference fills: its relative size among all, by decades. */
static void put_bar(struct ckpt_buf *b, const json_t *row, double most)
{
    double v = json_number_value(json_object_get(row, "relative"));
    double part = v > 0 && most > 0 ? fmax(0.02, 1 + log10(v / most) / 6) : 0;

    ckpt_buf_put_str(b, "<td>");
    if (part > 0)
        ckpt_buf_printf(b, "<span class=\"bar\"><i style=\"width:%.0f%%\"></i></span>",
                        100 * fmin(part, 1));
    ckpt_buf_put_str(b, "</td>");
}

/* -- rows ------------------------------------------------------------------------------------ */

struct row {
    const json_t *row;
    double        size;
    size_t        at;
};

static int by_size(const void *a, const void *b)
{
    const struct row *p = a, *q = b;

    if (p->size != q->size)
        return p->size > q->size ? -1 : 1;
    return (p->at > q->at) - (p->at < q->at);
}

/* The rows; differences of tensors by their relative size, those without one in front. */
static struct row *rows_of(const json_t *rows, bool differences, double *most)
{
    struct row *all = ckpt_alloc(json_array_size(rows), sizeof *all);
    json_t *row;
    size_t i;

    *most = 0;
    json_array_foreach ((json_t *)rows, i, row) {
        const json_t *v = json_object_get(row, "relative");

        if (!all)
            break;
        all[i] = (struct row){row, json_is_number(v) ? json_number_value(v) : INFINITY, i};
        if (json_is_number(v))
            *most = fmax(*most, all[i].size);
    }
    if (all && differences)
        qsort(all, json_array_size(rows), sizeof *all, by_size);
    return all;
}

/* names: the columns after the first are names, not keys. */
static void put_head(struct ckpt_buf *b, const struct columns *c, bool differences, bool names)
{
    ckpt_buf_printf(b, "<div class=\"box\" tabindex=\"0\"><table%s>\n<thead><tr>",
                    c->n <= 2 ? " class=\"narrow\"" : "");
    for (size_t k = 0; k < c->n; k++) {
        ckpt_buf_put_str(b, c->number[k] ? "<th class=\"n\" scope=\"col\">" : "<th scope=\"col\">");
        if (names && k > 0)
            page_text(b, c->key[k], TABLE_CELL_BYTES);
        else
            page_words(b, c->key[k]);
        ckpt_buf_put_str(b, "</th>");
    }
    ckpt_buf_put_str(b, differences ? "<th scope=\"col\">Size, log scale</th>" : "");
    ckpt_buf_put_str(b, "</tr></thead>\n<tbody>\n");
}

void page_table(struct ckpt_buf *b, const char *key, const json_t *rows, bool open)
{
    bool differences = strcmp(key, "differences") == 0;
    size_t n = json_array_size(rows), shown = n < TABLE_MAX_ROWS ? n : TABLE_MAX_ROWS;
    struct columns c = {.n = 0};
    double most;
    struct row *all = rows_of(rows, differences, &most);

    b->failed |= !all;
    put_section(b, key, n, open);
    columns_of(&c, rows);
    put_head(b, &c, differences, strcmp(key, "settings") == 0);
    for (size_t i = 0; all && i < shown; i++) {
        ckpt_buf_put_str(b, "<tr>");
        for (size_t k = 0; k < c.n; k++)
            put_cell(b, c.key[k], json_object_get(all[i].row, c.key[k]), c.number[k]);
        if (differences)
            put_bar(b, all[i].row, most);
        ckpt_buf_put_str(b, "</tr>\n");
    }
    ckpt_buf_put_str(b, "</tbody></table></div>\n");
    if (shown < n)
        ckpt_buf_printf(b, "<p class=\"note\">%zu of %zu rows; --json has all</p>\n", shown, n);
    ckpt_buf_put_str(b, "</details>\n");
    ckpt_free(all);
}
