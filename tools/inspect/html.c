/* html - the output of --json as a page for a browser; see inspect.h. */
#include <string.h>

#include "libckpt/commit.h"
#include "tools/inspect/inspect.h"

/*
 * page.html as a string.  The page fetches nothing and runs only its own script: its policy tells
 * the browser so, and names from files are inserted through textContent only.
 */
static const char page[] =
#include "tools/inspect/page.inc"
    ;
static const char mark[] = "@DATA@\n";   /* the line in it that the document replaces */

/* Write the document with "<" escaped, so that no text in it can end the script element. */
static int write_data(struct ckpt_out *out, const struct ckpt_buf *json, struct ckpt_err *err)
{
    int rc = 0;

    for (size_t at = 0, n; rc == 0 && at < json->len; at += n) {
        const unsigned char *p = json->data + at, *lt = memchr(p, '<', json->len - at);

        n = lt ? (size_t)(lt - p) : json->len - at;
        rc = ckpt_out_write(out, p, n, err);
        if (rc == 0 && lt) {
            rc = ckpt_out_write(out, "\\u003c", 6, err);
            n++;
        }
    }
    return rc;
}

int inspect_html(const struct inspect_want *w, const struct ckpt_buf *json, struct ckpt_err *err)
{
    const char *at = strstr(page, mark), *behind = at + sizeof mark - 1;
    struct ckpt_out *out;
    int rc = ckpt_out_create(&out, w->html, w->overwrite ? CKPT_REPLACE : 0, err);

    if (rc)
        return rc;
    rc = ckpt_out_write(out, page, (size_t)(at - page), err);
    if (rc == 0)
        rc = write_data(out, json, err);
    if (rc == 0)
        rc = ckpt_out_write(out, behind, strlen(behind), err);
    if (rc) {
        ckpt_out_abort(out);
        return rc;
    }
    return ckpt_out_commit(out, err);
}
