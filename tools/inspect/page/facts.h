/* facts - single values of a document: a row of figures, and cards by subject. */
#ifndef CKPT_TOOLS_INSPECT_PAGE_FACTS_H
#define CKPT_TOOLS_INSPECT_PAGE_FACTS_H

#include <jansson.h>

#include "libckpt/base/buf.h"
#include "tools/inspect/page/curves.h"

/* The few figures that people look for first; nothing where there are none. */
void page_figures(struct ckpt_buf *b, const json_t *doc, const struct page_curves *curves);
/* Cards: run, results, model, optimizer, data, hardware, and every other single value. */
void page_cards(struct ckpt_buf *b, const json_t *doc);

#endif
