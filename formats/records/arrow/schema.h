/* arrow/schema - an Arrow schema made into the fields of arrow.h. */
#ifndef CKPT_FORMATS_RECORDS_ARROW_SCHEMA_H
#define CKPT_FORMATS_RECORDS_ARROW_SCHEMA_H

#include "formats/container/flatbuffer.h"
#include "formats/records/arrow/arrow.h"

int arrow_schema_read(struct arrow_file *f, struct flatbuffer *flat,
                      const struct flatbuffer_table *schema,
                      struct ckpt_err *err);
/* How many buffers a field itself has in a batch. */
size_t arrow_buffers_of(const struct arrow_field *field);

#endif
