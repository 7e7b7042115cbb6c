/* records/rows - the kinds of record files, for record_open's table. */
#ifndef CKPT_FORMATS_RECORDS_ROWS_H
#define CKPT_FORMATS_RECORDS_ROWS_H

#include "formats/records/record.h"

extern const struct record_ops record_jsonl, record_json, record_csv, record_text, record_parquet,
    record_arrow, record_token_ids;

#endif
