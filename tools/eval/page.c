/* page - see page.h. */
#include "tools/eval/page.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/commit.h"
#include "libckpt/mem.h"
#include "tools/inspect/page/style.h"
#include "tools/inspect/page/text.h"

#define PAGE_TEXT ((size_t)1 << 20)     /* bytes of a text that are shown */

/* page.html as a string: rules of its own beside the common style sheet, and a search, without
 * which the page is complete. */
static const char page[] =
#include "tools/eval/page.inc"
    ;

/* Whether two texts are equal but for blanks around them. */
static bool equal(const char *a, const char *b)
{
    size_t n, m;

    while (isspace((unsigned char)*a))
        a++;
    while (isspace((unsigned char)*b))
        b++;
    n = strlen(a);
    m = strlen(b);
    while (n > 0 && isspace((unsigned char)a[n - 1]))
        n--;
    while (m > 0 && isspace((unsigned char)b[m - 1]))
        m--;
    return n == m && memcmp(a, b, n) == 0;
}

/* All right answers of row i; NULL: its reference is the only one.  Yours: json_decref. */
static json_t *answers_of(const struct eval_result *r, size_t i)
{
    return r->answers_json[i] ? json_loads(r->answers_json[i], 0, NULL) : NULL;
}

static bool has_reference(const struct eval_result *r, size_t i)
{
    return r->answers_json[i] || r->reference[i][0];
}

static bool is_right(const struct eval_result *r, size_t i, const char *text)
{
    json_t *answers = answers_of(r, i);
    bool right = !answers && r->reference[i][0] && equal(text, r->reference[i]);

    for (size_t k = 0; !right && k < json_array_size(answers); k++)
        right = equal(text, json_string_value(json_array_get(answers, k)));
    json_decref(answers);
    return right;
}

/* What two results of a row are to each other, and to its reference. */
struct verdict {
    bool differ, model, base;           /* the last two: it is the reference */
};

static struct verdict judge(const struct eval_result *model, const struct eval_result *base,
                            size_t i)
{
    struct verdict v = {.model = is_right(model, i, model->text[i])};

    if (base && i < base->n) {
        v.differ = strcmp(model->text[i], base->text[i]) != 0;
        v.base = is_right(model, i, base->text[i]);
    }
    return v;
}

/* -- the head --------------------------------------------------------------------------------- */

static void figure(struct ckpt_buf *b, const char *name, const char *value)
{
    ckpt_buf_printf(b, "<div><dt>%s</dt><dd>", name);
    page_text(b, value, 0);
    ckpt_buf_put_str(b, "</dd></div>\n");
}

/* A number, after that of the base. */
static void figure_pair(struct ckpt_buf *b, const char *name, double value, const double *base)
{
    char x[PAGE_NUMBER], y[PAGE_NUMBER], both[2 * PAGE_NUMBER + 8];

    page_number(x, value, 5);
    if (base)
        snprintf(both, sizeof both, "%s → %s", page_number(y, *base, 5), x);
    figure(b, name, base ? both : x);
}

static void put_figures(struct ckpt_buf *b, const struct eval_result *model,
                        const struct eval_result *base)
{
    size_t references = 0, differ = 0;
    double right = 0, base_right = 0;

    for (size_t i = 0; i < model->n; i++) {
        struct verdict v = judge(model, base, i);

        references += has_reference(model, i);
        differ += v.differ;
        right += v.model;
        base_right += v.base;
    }
    ckpt_buf_put_str(b, "<dl class=\"figures\">\n");
    if (model->n_targets > 0) {
        figure_pair(b, "Loss", model->loss, base ? &base->loss : NULL);
        figure_pair(b, "Perplexity", model->perplexity, base ? &base->perplexity : NULL);
        figure_pair(b, "Scored tokens", (double)model->n_targets, NULL);
    }
    figure_pair(b, "Texts", (double)model->n, NULL);
    if (base)
        figure_pair(b, "Differ from the base", (double)differ, NULL);
    if (references > 0)
        figure_pair(b, "Equal to the reference", right, base ? &base_right : NULL);
    ckpt_buf_put_str(b, "</dl>\n");
}

static void put_choice(struct ckpt_buf *b, const char *id, const char *label)
{
    ckpt_buf_printf(b, "<label><input type=\"radio\" name=\"rows\" id=\"%s\"%s/>%s</label>", id,
                    strcmp(id, "all") == 0 ? " checked=\"checked\"" : "", label);
}

static void put_tools(struct ckpt_buf *b, bool base)
{
    ckpt_buf_put_str(b, "<div class=\"tools\">");
    if (base) {
        ckpt_buf_put_str(b, "<div class=\"choice\" role=\"radiogroup\" aria-label=\"Rows\">");
        put_choice(b, "all", "All");
        put_choice(b, "differ", "Different");
        put_choice(b, "better", "Only the model exact");
        put_choice(b, "worse", "Only the base exact");
        ckpt_buf_put_str(b, "</div>");
    }
    ckpt_buf_put_str(b, "</div>\n");
}

/* -- a row ------------------------------------------------------------------------------------ */

/* Bytes that two texts begin with, in whole characters. */
static size_t common(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] && a[n] == b[n])
        n++;
    while (n > 0 && ((unsigned char)a[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static void put_text(struct ckpt_buf *b, const char *text, const char *beside)
{
    size_t same = beside && strcmp(text, beside) != 0 ? common(text, beside) : 0;

    if (!text[0]) {
        ckpt_buf_put_str(b, "<div class=\"text none\">nothing</div>");
        return;
    }
    ckpt_buf_put_str(b, "<div class=\"text\">");
    if (same > 0) {
        char *begin = ckpt_strdup(text);

        if (begin)
            begin[same] = '\0';
        ckpt_buf_put_str(b, "<span class=\"same\">");
        page_text(b, begin ? begin : "", PAGE_TEXT);
        ckpt_buf_put_str(b, "</span>");
        ckpt_free(begin);
    }
    page_text(b, text + same, PAGE_TEXT);
    ckpt_buf_put_str(b, "</div>");
}

/* A text under a heading; kind is a class of the style sheet. */
static void put_section(struct ckpt_buf *b, const char *kind, const char *title, const char *text,
                        const char *beside)
{
    ckpt_buf_printf(b, "<section class=\"%s\"><h3>", kind);
    page_text(b, title, 200);
    ckpt_buf_put_str(b, "</h3>");
    put_text(b, text, beside);
    ckpt_buf_put_str(b, "</section>\n");
}

static void put_references(struct ckpt_buf *b, const struct eval_result *model, size_t i)
{
    json_t *answers = answers_of(model, i);

    if (!answers && model->reference[i][0])
        put_section(b, "r", "Reference", model->reference[i], NULL);
    for (size_t k = 0; k < json_array_size(answers); k++)
        put_section(b, "r", "Reference", json_string_value(json_array_get(answers, k)), NULL);
    json_decref(answers);
}

static void put_row(struct ckpt_buf *b, const struct eval_result *model,
                    const struct eval_result *base, size_t i)
{
    struct verdict v = judge(model, base, i);
    bool beside = base && i < base->n, better = v.model && !v.base, worse = v.base && !v.model;

    ckpt_buf_printf(b, "<article class=\"row%s%s%s\"><h2>%zu", v.differ ? " differ" : "",
                    beside && better ? " better" : "", worse ? " worse" : "", i + 1);
    if (beside)
        ckpt_buf_printf(b, "<small>%s</small>", v.differ ? "different" : "the same text");
    if (v.model)
        ckpt_buf_put_str(b, "<small class=\"good\">equals the reference</small>");
    if (worse)
        ckpt_buf_put_str(b, "<small class=\"ill\">only the base equals the reference</small>");
    ckpt_buf_put_str(b, "</h2>\n<div class=\"sides\">");
    put_section(b, "p", "Prompt", model->prompt[i], NULL);
    put_references(b, model, i);
    ckpt_buf_put_str(b, "</div>\n<div class=\"sides\">");
    if (beside)
        put_section(b, "a", base->model, base->text[i], model->text[i]);
    put_section(b, "b", model->model, model->text[i], beside ? base->text[i] : NULL);
    ckpt_buf_put_str(b, "</div></article>\n");
}

static void put_body(struct ckpt_buf *b, const struct eval_result *model,
                     const struct eval_result *base)
{
    ckpt_buf_put_str(b, "<h1>");
    page_text(b, model->model, 500);
    ckpt_buf_put_str(b, "</h1>\n");
    if (base) {
        ckpt_buf_put_str(b, "<p class=\"path\">beside ");
        page_text(b, base->model, 500);
        ckpt_buf_put_str(b, "</p>\n");
    }
    put_figures(b, model, base);
    put_tools(b, base != NULL);
    for (size_t i = 0; i < model->n; i++)
        put_row(b, model, base, i);
}

static void put_part(struct ckpt_buf *b, const char *mark, const struct eval_result *model,
                     const struct eval_result *base)
{
    if (strcmp(mark, "@TITLE@") == 0)
        page_text(b, model->model, 200);
    else if (strcmp(mark, "@STYLE@") == 0)
        ckpt_buf_put_str(b, page_style);
    else
        put_body(b, model, base);
}

static void put_page(struct ckpt_buf *b, const struct eval_result *model,
                     const struct eval_result *base)
{
    static const char *const marks[] = {"@TITLE@", "@STYLE@", "@BODY@"};
    const char *at = page;

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *mark = strstr(at, marks[i]);

        ckpt_buf_put(b, at, (size_t)(mark - at));
        put_part(b, marks[i], model, base);
        at = mark + strlen(marks[i]);
    }
    ckpt_buf_put_str(b, at);
}

int eval_page_write(const char *path, bool overwrite, const struct eval_result *model,
                    const struct eval_result *base, struct ckpt_err *err)
{
    struct ckpt_out *out = NULL;
    struct ckpt_buf text;
    int rc;

    ckpt_buf_init(&text, SIZE_MAX);
    put_page(&text, model, base);
    rc = ckpt_buf_ok(&text) ? 0 : ckpt_nomem(err, text.len);
    if (rc == 0)
        rc = ckpt_out_create(&out, path, overwrite ? CKPT_REPLACE : 0, err);
    if (rc == 0)
        rc = ckpt_out_write(out, text.data, text.len, err);
    if (rc == 0)
        rc = ckpt_out_commit(out, err);
    else
        ckpt_out_abort(out);
    ckpt_buf_release(&text);
    return rc;
}
