/* table - arrays of objects as tables, and other values folded away. */
#ifndef CKPT_TOOLS_INSPECT_PAGE_TABLE_H
#define CKPT_TOOLS_INSPECT_PAGE_TABLE_H

#include <jansson.h>

#include "libckpt/base/buf.h"

#define TABLE_MAX_ROWS    1000
#define TABLE_MAX_COLUMNS 40
#define TABLE_CELL_BYTES  300           /* of a text in a cell */

/* Whether v is an array of objects with at least one. */
bool page_is_table(const json_t *v);
/*
 * Put the rows with a column for every key that a row has a value for, at most TABLE_MAX_ROWS;
 * numbers to the right, {"low", "high", "counts"} as a histogram.  Differences of tensors are
 * sorted by their size and get a bar.  open: not folded.
 */
void page_table(struct ckpt_buf *b, const char *key, const json_t *rows, bool open);
/* Put a value as folded JSON. */
void page_json(struct ckpt_buf *b, const char *key, const json_t *v);

#endif
