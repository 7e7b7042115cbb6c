/* document - see document.h. */
#include "tools/inspect/page/document.h"

#include <stdio.h>
#include <string.h>

#include "tools/inspect/page/chart.h"
#include "tools/inspect/page/facts.h"
#include "tools/inspect/page/table.h"
#include "tools/inspect/page/text.h"

#define MOST_COLUMNS  400       /* of a chart, two points each */
#define LEAST_COLUMNS 60
#define ALL_COLUMNS   24000     /* of all curves of a page: some 2 MB */

/* Tables that are shown unfolded, in front of the others and in this order. */
static const char *const front[] = {"runs", "settings", "differences", "findings", "scan",
                                    "checkpoints", "samples", "tags", "optimizer_groups"};
#define N_FRONT (sizeof front / sizeof front[0])

/* Put the last part of a path; of a folder without a name its purpose. */
static void put_base(struct ckpt_buf *b, const char *path)
{
    size_t end = strlen(path), start;
    char name[200];

    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    snprintf(name, sizeof name, "%.*s", end - start < sizeof name ? (int)(end - start) : 199,
             path + start);
    page_text(b, *name == '.' && strspn(name, ".") == strlen(name) ? "Run" : name, 0);
}

void page_title(struct ckpt_buf *b, const json_t *doc)
{
    const char *path = json_string_value(json_object_get(doc, "path"));
    const char *other = json_string_value(json_object_get(doc, "compared_with"));
    size_t runs = json_array_size(json_object_get(doc, "runs"));

    if (path)
        put_base(b, path);
    else if (runs)
        ckpt_buf_printf(b, "%zu run%s side by side", runs, runs == 1 ? "" : "s");
    else
        ckpt_buf_put_str(b, "ckpt-inspect");
    if (other) {
        ckpt_buf_put_str(b, " and ");
        put_base(b, other);
    }
}

static void put_paths(struct ckpt_buf *b, const json_t *doc)
{
    static const char *const keys[] = {"path", "compared_with"};

    for (size_t i = 0; i < 2; i++) {
        const char *path = json_string_value(json_object_get(doc, keys[i]));

        if (!path || !strchr(path, '/'))
            continue;
        ckpt_buf_put_str(b, "<p class=\"path\"><code>");
        page_text(b, path, 1000);
        ckpt_buf_put_str(b, "</code></p>\n");
    }
}

static void put_charts(struct ckpt_buf *b, struct page_curves *curves)
{
    size_t all = 1, columns;
    bool pair;

    page_curves_sort(curves);
    for (size_t i = 0; i < curves->n; i++)
        all += curves->chart[i].n;
    columns = ALL_COLUMNS / all;
    columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns < LEAST_COLUMNS ? LEAST_COLUMNS
                                                                              : columns;
    if (curves->n == 0)
        return;
    pair = curves->n > 1 && strcmp(curves->chart[1].name, "Eval loss") == 0;
    ckpt_buf_put_str(b, "<div class=\"charts\">\n");
    for (size_t i = 0; i < curves->n; i++)
        page_chart(b, &curves->chart[i], i, columns, pair && i < 2 ? "half" : i == 0 ? "wide" : "");
    ckpt_buf_put_str(b, "</div>\n");
    if (curves->left_out)
        ckpt_buf_printf(b, "<p class=\"note\">%d charts are drawn, further ones are not</p>\n",
                        CURVES_MAX_CHARTS);
}

static bool is_front(const char *key)
{
    for (size_t i = 0; i < N_FRONT; i++)
        if (strcmp(front[i], key) == 0)
            return true;
    return false;
}

static void put_tables(struct ckpt_buf *b, const json_t *doc)
{
    const char *key;
    json_t *v;

    for (size_t i = 0; i < N_FRONT; i++)
        if (page_is_table(json_object_get(doc, front[i])))
            page_table(b, front[i], json_object_get(doc, front[i]), true);
    json_object_foreach ((json_t *)doc, key, v)
        if (page_is_table(v) && !is_front(key))
            page_table(b, key, v, false);
    json_object_foreach ((json_t *)doc, key, v)
        if (!page_is_table(v) && (json_array_size(v) || json_object_size(v)) &&
            strcmp(key, "results") != 0 && strcmp(key, "hardware") != 0)
            page_json(b, key, v);
}

void page_body(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves)
{
    const char *refused = json_string_value(json_object_get(doc, "refused"));

    ckpt_buf_put_str(b, "<header>\n<h1>");
    page_title(b, doc);
    ckpt_buf_put_str(b, "</h1>\n");
    put_paths(b, doc);
    if (refused) {
        ckpt_buf_put_str(b, "<p class=\"alarm\">");
        page_text(b, refused, 1000);
        ckpt_buf_put_str(b, "</p>\n");
    }
    page_figures(b, doc, curves);
    ckpt_buf_put_str(b, "</header>\n<main>\n");
    put_charts(b, curves);
    page_cards(b, doc);
    put_tables(b, doc);
    ckpt_buf_put_str(b, "</main>\n");
}
