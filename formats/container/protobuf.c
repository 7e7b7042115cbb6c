/* container/protobuf - see container/protobuf.h. */
#include "formats/container/protobuf.h"

#include <string.h>

uint64_t protobuf_varint(struct ckpt_cursor *c)
{
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        uint8_t b = ckpt_cursor_u8(c);

        if (c->failed || (shift == 63 && b > 1))
            break;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b < 0x80)
            return v;
    }
    c->failed = true;
    return 0;
}

bool protobuf_next(struct ckpt_cursor *c, struct protobuf_field *f)
{
    uint64_t key, len;

    *f = (struct protobuf_field){0};
    if (c->failed || ckpt_cursor_left(c) == 0)
        return false;
    key = protobuf_varint(c);
    if (c->failed || key >> 3 == 0 || key >> 3 >= (uint64_t)1 << 29) {
        c->failed = true;
        return false;
    }
    f->number = (uint32_t)(key >> 3);
    f->type = (enum protobuf_type)(key & 7);
    switch (f->type) {
    case PROTOBUF_VARINT:
        f->bits = protobuf_varint(c);
        break;
    case PROTOBUF_64:
        f->bits = ckpt_cursor_u64le(c);
        break;
    case PROTOBUF_32:
        f->bits = ckpt_cursor_u32le(c);
        break;
    case PROTOBUF_BYTES:
        len = protobuf_varint(c);
        if (!c->failed && len > ckpt_cursor_left(c))
            c->failed = true;
        if (!c->failed) {
            f->len = (size_t)len;
            f->bytes = ckpt_cursor_bytes(c, f->len);
        }
        break;
    default:
        c->failed = true;
    }
    return !c->failed;
}

struct ckpt_cursor protobuf_inside(const struct protobuf_field *f)
{
    struct ckpt_cursor c;

    ckpt_cursor_init(&c, f->bytes ? (const void *)f->bytes : "", f->len);
    return c;
}

double protobuf_double(uint64_t bits)
{
    double v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

float protobuf_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float v;

    memcpy(&v, &low, sizeof v);
    return v;
}
