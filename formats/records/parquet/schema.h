/* parquet/schema - a footer's schema made into the tree of parquet.h. */
#ifndef CKPT_FORMATS_RECORDS_PARQUET_SCHEMA_H
#define CKPT_FORMATS_RECORDS_PARQUET_SCHEMA_H

#include "formats/container/thrift.h"
#include "formats/records/parquet/parquet.h"

/* The cursor is at the begin of the list of schema elements. */
int pq_schema_read(struct pq_file *f, struct ckpt_cursor *c, struct ckpt_err *err);
/* A name as the text that goes in front of a value, in arena; NULL with err filled in. */
const char *pq_json_key(struct ckpt_arena *arena, const char *name, struct ckpt_err *err);

#endif
