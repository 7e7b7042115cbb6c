/*
 * arrow - what an Arrow IPC stream or file says: its schema, and where the buffers of its
 * record batches lie.
 *
 * Source: apache/arrow format/{Message,Schema,File}.fbs and docs/source/format/Columnar.rst, 1.5.
 *
 *   "ARROW1\0\0"   of the file format only
 *   messages: u32 0xffffffff, u32 length of metadata (0: the end), metadata (FlatBuffers,
 *             padded to 8), body
 *   the file format has a footer after them, which tells nothing new
 *
 * A field has, depth first, one node (length, nulls) and its type's buffers in each batch:
 * validity bits, then offsets or values.
 */
#ifndef CKPT_FORMATS_RECORDS_ARROW_ARROW_H
#define CKPT_FORMATS_RECORDS_ARROW_ARROW_H

#include "formats/records/parquet/parquet.h"

#define ARROW_MAX_META   ((uint64_t)256 << 20)  /* bytes of a message's metadata */
#define ARROW_MAX_DEPTH  32
#define ARROW_MAX_FIELDS 65536
#define ARROW_MAX_PAIRS  1024                   /* of metadata that are kept */
#define ARROW_MAX_VALUE  ((size_t)64 << 10)     /* longest value of it that is kept */

enum arrow_layout { ARROW_NULL, ARROW_FIXED, ARROW_BOOL, ARROW_BYTES, ARROW_LIST,
                    ARROW_FIXED_LIST, ARROW_STRUCT, ARROW_MAP };

struct arrow_field {
    const char       *name;
    enum arrow_layout layout;
    size_t            width;        /* of a fixed value, or of an offset: 1 to 64 */
    int64_t           list;         /* elements of a fixed list */
    size_t            end;          /* after its last descendant */
    size_t            buffer;       /* its first one */
    bool              is_signed, is_float;
    int64_t           factor;       /* by which a stored time is multiplied; 1 mostly */
    bool              days_of_ms;   /* a date in milliseconds */
    struct pq_node    text;         /* how a value is printed: its meaning, and key its JSON key */
    /* A dictionary: the field holds indices, the values lie in batches of their own. */
    bool              coded;
    int64_t           dictionary;   /* its id */
    size_t            values;       /* the field of a value, after those of the schema */
};

struct arrow_buffer {
    uint64_t at, len;               /* in the file; checked to lie inside */
};

struct arrow_batch {
    int64_t              first, rows;
    int64_t              dictionary;    /* id, of a dictionary's batch */
    size_t               field;         /* its first field */
    int64_t             *length;        /* [fields] */
    struct arrow_buffer *buffer;        /* [buffers] */
};

struct arrow_file {
    struct ckpt_file   *file;           /* borrowed */
    struct ckpt_arena   arena;
    struct arrow_field *field;
    size_t              n_field;        /* with those of dictionaries */
    size_t              n_schema;       /* those of rows; roots follow each other by end */
    size_t              n_buffer;
    struct arrow_batch *batch, *entry;  /* of rows; of dictionaries */
    size_t              n_batch, cap_batch, n_entry, cap_entry;
    int64_t             rows;
    json_t             *metadata;       /* of the schema, string to string; text alone */
};

/* Whether the first bytes are those of a stream or a file. */
bool arrow_is(const unsigned char *head, size_t len);
/* The file stays yours and is needed until release, which is due after a failure too. */
int arrow_file_open(struct arrow_file *f, struct ckpt_file *file, struct ckpt_err *err);
void arrow_file_release(struct arrow_file *f);

#endif
