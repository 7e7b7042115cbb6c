/*
 * parquet/text - a value of a parquet column as JSON text.
 *
 * What JSON has no word for: bytes are {"b64": "..."}, times are ISO 8601 texts as Python's
 * isoformat writes them (to nanoseconds where there are some), decimals and integers
 * beyond 63 bits are texts of their digits, numbers that are not finite "NaN", "Infinity",
 * "-Infinity".
 */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_TEXT_H
#define CKPT_FORMATS_RECORDS_PARQUET_TEXT_H

#include "formats/records/parquet/column.h"

void pq_text(struct ckpt_buf *out, const struct pq_node *leaf, const struct pq_value *v);

#endif
