/* document - a JSON document and curves as the body of a page. */
#ifndef CKPT_TOOLS_INSPECT_PAGE_DOCUMENT_H
#define CKPT_TOOLS_INSPECT_PAGE_DOCUMENT_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "tools/inspect/page/curves.h"

/* Put the title of the page, without markup around it. */
void page_title(struct ckpt_buf *b, const json_t *doc);
/* Put the body: heading, figures, charts, cards, tables.  Sorts the curves. */
void page_body(struct ckpt_buf *b, const json_t *doc, struct page_curves *curves);

#endif
