/*
 * container/protobuf - fields of a protocol buffers message, in order, decoded on request.
 *
 * Source: protobuf.dev, "Encoding".  A field is a varint key (number << 3 | type) and a value:
 * type 0 a varint, 1 eight bytes, 2 a varint length and that many bytes (text, sub-messages,
 * packed numbers), 5 four bytes.  Groups (3, 4) are obsolete since proto2 and refused.
 */
#ifndef CKPT_FORMATS_CONTAINER_PROTOBUF_H
#define CKPT_FORMATS_CONTAINER_PROTOBUF_H

#include "libckpt/base/buf.h"

enum protobuf_type {
    PROTOBUF_VARINT = 0, PROTOBUF_64 = 1, PROTOBUF_BYTES = 2, PROTOBUF_32 = 5
};

struct protobuf_field {
    uint32_t             number;    /* 1 to 2^29 - 1 */
    enum protobuf_type   type;
    uint64_t             bits;      /* a varint, or four or eight bytes; else 0 */
    const unsigned char *bytes;     /* PROTOBUF_BYTES: borrowed from the message; else NULL */
    size_t               len;
};

/* The next field.  False at the end, and with c->failed where the bytes are not a valid message. */
bool protobuf_next(struct ckpt_cursor *c, struct protobuf_field *f);
/* A varint; sets c->failed when it is truncated or longer than 64 bits. */
uint64_t protobuf_varint(struct ckpt_cursor *c);
/* A cursor over the content of a PROTOBUF_BYTES field; an empty one for any other field. */
struct ckpt_cursor protobuf_inside(const struct protobuf_field *f);
double protobuf_double(uint64_t bits);
float protobuf_float(uint64_t bits);
/* sint32, sint64: 0, -1, 1, -2, ... */
static inline int64_t protobuf_zigzag(uint64_t v)
{
    return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}
/* True for field `number` of that type. */
static inline bool protobuf_is(const struct protobuf_field *f, uint32_t number,
                               enum protobuf_type type)
{
    return f->number == number && f->type == type;
}

#endif
