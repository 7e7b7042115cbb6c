/*
 * text - text and numbers as a page shows them.
 *
 * Everything that comes from a file passes through page_text, so that the page stays well-formed
 * (as HTML and as XML) whatever names and texts the file has.
 */
#ifndef CKPT_TOOLS_INSPECT_PAGE_TEXT_H
#define CKPT_TOOLS_INSPECT_PAGE_TEXT_H

#include <jansson.h>

#include "libckpt/base/buf.h"

#define PAGE_NUMBER 40          /* bytes of a number as text, with its end */

/* Put s with markup escaped; control characters and bytes that are not UTF-8 become U+FFFD.  Of a
 * longer text the first `most` bytes and "…"; 0: no limit. */
void page_text(struct ckpt_buf *b, const char *s, size_t most);
/* A key as words: '_' as a blank, the first letter a capital, "_per_second" as "/s", "_bytes" left
 * out since the value has the unit. */
void page_words(struct ckpt_buf *b, const char *key);
/* A number of at most `digits` significant digits: "0.002", "5e-5", "1,234,567", "NaN". */
char *page_number(char dst[PAGE_NUMBER], double v, int digits);
/* A number in little space: "12.5k", "3M". */
char *page_short(char dst[PAGE_NUMBER], double v);
/* Bytes as people read them: "1.50 GB"; seconds: "1 h 12 min". */
char *page_bytes(char dst[PAGE_NUMBER], double v);
char *page_seconds(char dst[PAGE_NUMBER], double v);
/* A value under its key, which may say a unit: a number, a text, or an object as JSON; of at most
 * `most` bytes. */
void page_value(struct ckpt_buf *b, const char *key, const json_t *v, size_t most);

#endif
