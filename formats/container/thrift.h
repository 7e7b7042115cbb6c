/*
 * thrift - the compact protocol of Apache Thrift, as parquet's footers and page headers use it.
 *
 * Source: thrift-compact-protocol.md.  A struct is fields up to a zero byte; a field begins with
 * (delta of its number << 4 | type), or with delta 0 and its number as a zigzag varint.  Integers
 * are zigzag varints, a bool is its type, text is a varint length and bytes.  A list begins with
 * (size << 4 | type of elements), size 15 meaning that a varint follows.
 */
#ifndef CKPT_FORMATS_CONTAINER_THRIFT_H
#define CKPT_FORMATS_CONTAINER_THRIFT_H

#include "libckpt/base/buf.h"

enum thrift_type {
    THRIFT_TRUE = 1, THRIFT_FALSE, THRIFT_I8, THRIFT_I16, THRIFT_I32, THRIFT_I64, THRIFT_DOUBLE,
    THRIFT_BYTES, THRIFT_LIST, THRIFT_SET, THRIFT_MAP, THRIFT_STRUCT
};

/* A field of a struct; a zeroed one begins the struct. */
struct thrift_field {
    int32_t              id;
    enum thrift_type     type;
    int64_t              i;         /* of an integer or a bool */
    const unsigned char *bytes;     /* THRIFT_BYTES: borrowed, not NULL */
    size_t               len;
};

/*
 * The next field of the struct at c; false at its end, and with c->failed where the bytes are not
 * a valid struct.  The cursor is after a scalar, and before the contents of a list, set, map or
 * struct: read them, or thrift_skip the field.
 */
bool thrift_next(struct ckpt_cursor *c, struct thrift_field *f);
/* Step over the contents of a field that thrift_next returned. */
void thrift_skip(struct ckpt_cursor *c, const struct thrift_field *f);
/* Begin a list: its size, and the type of its elements.  Every element takes at least a byte. */
size_t thrift_list(struct ckpt_cursor *c, enum thrift_type *type);
/* An element of a list of integers. */
int64_t thrift_int(struct ckpt_cursor *c);
static inline bool thrift_is_int(const struct thrift_field *f)
{
    return f->type >= THRIFT_I16 && f->type <= THRIFT_I64;
}

#endif
