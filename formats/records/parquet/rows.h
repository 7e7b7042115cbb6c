/*
 * parquet/rows - the rows of a row group as JSON texts, in order.
 *
 * A row is an object of its columns.  Lists are lists, maps are lists of [key, value], structs
 * are objects; an optional node that is not there is null.  Memory is a page and a dictionary a
 * column, whatever the row group's size.
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_ROWS_H
#define CKPT_FORMATS_RECORDS_PARQUET_ROWS_H

#include "formats/records/parquet/column.h"

#define PQ_MAX_ROW ((size_t)64 << 20)   /* bytes of a row's text, with room to escape a value */

struct pq_rows;

/*
 * Rows of group number g, from its first; file stays yours and is needed until close.  want:
 * for each leaf whether it is read, or NULL for all; what is left out is not in the rows.
 */
int pq_rows_open(struct pq_rows **out, const struct pq_file *file, size_t g, const bool *want,
                 struct ckpt_err *err);
/* The next row's text appended to out; there are as many as the group has rows. */
int pq_rows_next(struct pq_rows *r, struct ckpt_buf *out, struct ckpt_err *err);
/* Leave out the next n rows, at most as many as there are; pages that hold no other rows are not
 * read where columns are not nested in lists. */
int pq_rows_skip(struct pq_rows *r, int64_t n, struct ckpt_err *err);
/* After the last row: CKPT_EFORMAT when a column has more. */
int pq_rows_end(struct pq_rows *r, struct ckpt_err *err);
void pq_rows_close(struct pq_rows *r);

#endif
