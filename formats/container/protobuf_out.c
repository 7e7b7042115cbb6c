/* container/protobuf_out - see protobuf_out.h. */
#include "formats/container/protobuf_out.h"

#include <string.h>

#include "formats/container/protobuf.h"

#define MAX_VARINT 10           /* bytes of 64 bits, seven in each */

static size_t put_varint(unsigned char dst[MAX_VARINT], uint64_t v)
{
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        dst[n++] = (unsigned char)(v | 0x80);
    dst[n++] = (unsigned char)v;
    return n;
}

static void varint(struct ckpt_buf *b, uint64_t v)
{
    unsigned char bytes[MAX_VARINT];

    ckpt_buf_put(b, bytes, put_varint(bytes, v));
}

static void key(struct ckpt_buf *b, uint32_t number, enum protobuf_type type)
{
    varint(b, (uint64_t)number << 3 | type);
}

void protobuf_out_varint(struct ckpt_buf *b, uint32_t number, uint64_t v)
{
    key(b, number, PROTOBUF_VARINT);
    varint(b, v);
}

void protobuf_out_double(struct ckpt_buf *b, uint32_t number, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    key(b, number, PROTOBUF_64);
    ckpt_buf_put_u64le(b, bits);
}

void protobuf_out_float(struct ckpt_buf *b, uint32_t number, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    key(b, number, PROTOBUF_32);
    ckpt_buf_put_u32le(b, bits);
}

void protobuf_out_bytes(struct ckpt_buf *b, uint32_t number, const void *bytes, size_t n)
{
    key(b, number, PROTOBUF_BYTES);
    varint(b, n);
    if (n > 0)
        ckpt_buf_put(b, bytes, n);
}

void protobuf_out_text(struct ckpt_buf *b, uint32_t number, const char *text)
{
    if (text && *text)
        protobuf_out_bytes(b, number, text, strlen(text));
}

void protobuf_out_doubles(struct ckpt_buf *b, uint32_t number, const double *v, size_t n)
{
    protobuf_out_bytes(b, number, v, n * sizeof *v);    /* little-endian, as dtype.c asserts */
}

size_t protobuf_out_begin(struct ckpt_buf *b, uint32_t number)
{
    key(b, number, PROTOBUF_BYTES);
    return b->len;
}

void protobuf_out_end(struct ckpt_buf *b, size_t at)
{
    unsigned char bytes[MAX_VARINT];
    size_t content = b->len - at, n = put_varint(bytes, content);

    ckpt_buf_put(b, bytes, n);          /* takes the space; the content moves behind it */
    if (!ckpt_buf_ok(b))
        return;
    memmove(b->data + at + n, b->data + at, content);
    memcpy(b->data + at, bytes, n);
}
