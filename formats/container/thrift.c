/* thrift - see thrift.h. */
#include "formats/container/thrift.h"

#include "formats/container/protobuf.h"

#define MAX_DEPTH 32            /* nesting of skipped values */

int64_t thrift_int(struct ckpt_cursor *c) { return protobuf_zigzag(protobuf_varint(c)); }

/* NULL, with c->failed, when it is truncated. */
static const unsigned char *text(struct ckpt_cursor *c, size_t *len)
{
    uint64_t n = protobuf_varint(c);

    *len = 0;
    if (c->failed || n > ckpt_cursor_left(c)) {
        c->failed = true;
        return NULL;
    }
    *len = (size_t)n;
    return n > 0 ? ckpt_cursor_bytes(c, *len) : (const unsigned char *)"";
}

/* The number and type of a field; false at the end of its struct. */
static bool head(struct ckpt_cursor *c, int32_t *id, uint8_t *type)
{
    uint8_t b = ckpt_cursor_u8(c);
    int64_t next;

    if (c->failed || b == 0)
        return false;
    *type = b & 15;
    next = b >> 4 ? *id + (b >> 4) : thrift_int(c);
    if (c->failed || next < 1 || next > INT16_MAX || *type < THRIFT_TRUE ||
        *type > THRIFT_STRUCT) {
        c->failed = true;
        return false;
    }
    *id = (int32_t)next;
    return true;
}

bool thrift_next(struct ckpt_cursor *c, struct thrift_field *f)
{
    int32_t id = f->id;
    uint8_t type;

    if (!head(c, &id, &type))
        return false;
    *f = (struct thrift_field){.id = id, .type = (enum thrift_type)type};
    switch (f->type) {
    case THRIFT_TRUE: f->i = 1; break;
    case THRIFT_FALSE: break;
    case THRIFT_I8: f->i = (int8_t)ckpt_cursor_u8(c); break;
    case THRIFT_I16: case THRIFT_I32: case THRIFT_I64: f->i = thrift_int(c); break;
    case THRIFT_DOUBLE: ckpt_cursor_skip(c, 8); break;
    case THRIFT_BYTES: f->bytes = text(c, &f->len); break;
    default: break;
    }
    return !c->failed;
}

size_t thrift_list(struct ckpt_cursor *c, enum thrift_type *type)
{
    uint8_t b = ckpt_cursor_u8(c);
    uint64_t n = b >> 4 == 15 ? protobuf_varint(c) : b >> 4;

    *type = (enum thrift_type)(b & 15);
    /* Some writers write an empty list with element type 0. */
    if (c->failed || n > ckpt_cursor_left(c) ||
        (n > 0 && (*type < THRIFT_TRUE || *type > THRIFT_STRUCT))) {
        c->failed = true;
        return 0;
    }
    return (size_t)n;
}

/* A level being skipped: a struct, or elements of one type, or of two alternating ones (a map). */
struct level {
    bool     fields;
    int32_t  id;
    uint64_t left;
    uint8_t  type[2];
};

/* Skip a value in a list, where a bool takes a byte.  True when it opens a level. */
static bool skip_value(struct ckpt_cursor *c, uint8_t type, bool field, struct level *inner)
{
    enum thrift_type element;
    size_t n;
    uint8_t b;

    *inner = (struct level){0};
    switch (type) {
    case THRIFT_TRUE: case THRIFT_FALSE: ckpt_cursor_skip(c, field ? 0 : 1); return false;
    case THRIFT_I8: ckpt_cursor_skip(c, 1); return false;
    case THRIFT_I16: case THRIFT_I32: case THRIFT_I64: protobuf_varint(c); return false;
    case THRIFT_DOUBLE: ckpt_cursor_skip(c, 8); return false;
    case THRIFT_BYTES: text(c, &n); return false;
    case THRIFT_LIST: case THRIFT_SET:
        inner->left = thrift_list(c, &element);
        inner->type[0] = inner->type[1] = (uint8_t)element;
        return true;
    case THRIFT_MAP:
        inner->left = protobuf_varint(c);
        if (inner->left == 0)
            return false;
        b = ckpt_cursor_u8(c);
        inner->type[0] = b & 15;        /* the second type of a pair is the value's */
        inner->type[1] = b >> 4;
        if (inner->left > ckpt_cursor_left(c))
            c->failed = true;
        inner->left *= 2;
        return true;
    case THRIFT_STRUCT: inner->fields = true; return true;
    default: c->failed = true; return false;
    }
}

void thrift_skip(struct ckpt_cursor *c, const struct thrift_field *f)
{
    struct level stack[MAX_DEPTH], inner;
    size_t depth = 0;
    uint8_t type;

    if (f->type < THRIFT_LIST)
        return;                         /* thrift_next has read it */
    if (skip_value(c, (uint8_t)f->type, true, &inner))
        stack[depth++] = inner;
    while (!c->failed && depth > 0) {
        struct level *l = &stack[depth - 1];

        if (l->fields ? !head(c, &l->id, &type) : l->left == 0) {
            depth--;
            continue;
        }
        if (!l->fields) {
            l->left--;
            type = l->type[l->left & 1];
        }
        if (!skip_value(c, type, l->fields, &inner))
            continue;
        if (depth == MAX_DEPTH)
            c->failed = true;
        else
            stack[depth++] = inner;
    }
}
