/* records/rows - the kinds of record files, for the table of records/open.c; numbers in them. */
#ifndef CKPT_FORMATS_RECORDS_ROWS_H
#define CKPT_FORMATS_RECORDS_ROWS_H

#include "formats/records/record.h"

/* A little-endian integer of 1 to 8 bytes. */
int64_t records_int(const unsigned char *bytes, size_t width, bool is_signed);

extern const struct record_ops record_jsonl, record_json, record_csv, record_text, record_parquet,
    record_arrow, record_token_ids;

#endif
