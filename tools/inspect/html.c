/* html - the output of --json and the curves of a run as a page for a browser; see inspect.h. */
#include <string.h>

#include "libckpt/commit.h"
#include "libckpt/io/path.h"
#include "tools/inspect/inspect.h"
#include "tools/inspect/page/document.h"
#include "tools/inspect/page/style.h"

/*
 * page.html as a string: a script for the pointer, sorting and filtering, without
 * which the page is complete.  The page fetches nothing: its policy tells the browser so.
 */
static const char page[] =
#include "tools/inspect/page.inc"
    ;

static void put_title(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves)
{
    (void)curves;
    page_title(b, doc);
}

static void put_style(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves)
{
    (void)doc;
    (void)curves;
    ckpt_buf_put_str(b, page_style);
}

/* What stands in it for parts of the document. */
static const struct mark {
    const char *text;
    void      (*put)(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves);
} marks[] = {{"@TITLE@", put_title}, {"@STYLE@", put_style}, {"@BODY@", page_body}};

static void put_page(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves)
{
    const char *at = page;

    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        const char *mark = strstr(at, marks[i].text);

        ckpt_buf_put(b, at, (size_t)(mark - at));
        marks[i].put(b, doc, curves);
        at = mark + strlen(marks[i].text);
    }
    ckpt_buf_put_str(b, at);
}

int inspect_html(const struct inspect_want *w, const struct ckpt_buf *json, struct ckpt_err *err)
{
    json_error_t why;
    json_t *doc = json_loadb((const char *)json->data, json->len, JSON_ALLOW_NUL, &why);
    struct ckpt_out *out = NULL;
    struct ckpt_buf text;
    int rc = doc ? 0 : ckpt_fail(err, CKPT_EFORMAT, "the document for the page: %s", why.text);

    ckpt_buf_init(&text, SIZE_MAX);
    if (rc == 0) {
        put_page(&text, doc, w->curves);
        rc = ckpt_buf_ok(&text) ? 0 : ckpt_nomem(err, text.len);
    }
    if (rc == 0)
        rc = ckpt_out_create(&out, w->html, w->overwrite ? CKPT_REPLACE : 0, err);
    if (rc == CKPT_ECREATE && !w->overwrite && ckpt_path_is_file(w->html))
        ckpt_err_hint(err, "--overwrite replaces it");
    if (rc == 0)
        rc = ckpt_out_write(out, text.data, text.len, err);
    if (rc == 0)
        rc = ckpt_out_commit(out, err);
    else if (out)
        ckpt_out_abort(out);
    ckpt_buf_release(&text);
    json_decref(doc);
    return rc;
}
