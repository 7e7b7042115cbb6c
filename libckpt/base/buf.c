/* buf - see buf.h. */
#include "libckpt/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/mem.h"

void ckpt_buf_init(struct ckpt_buf *b, size_t limit)
{
    memset(b, 0, sizeof *b);
    b->limit = limit;
}

void ckpt_buf_release(struct ckpt_buf *b)
{
    ckpt_free(b->data);
    memset(b, 0, sizeof *b);
}

/* Make space for n more bytes, or set failed. */
static bool reserve(struct ckpt_buf *b, size_t n)
{
    size_t cap;
    void *grown;

    if (b->failed || n > b->limit - b->len) {
        b->failed = true;
        return false;
    }
    if (n <= b->cap - b->len)
        return true;
    cap = b->cap < 256 ? 256 : b->cap;
    while (cap - b->len < n)
        cap = cap > SIZE_MAX / 2 ? b->len + n : cap * 2;
    grown = ckpt_grow(b->data, cap, 1);
    if (!grown) {
        b->failed = true;
        return false;
    }
    b->data = grown;
    b->cap = cap;
    return true;
}

void ckpt_buf_put(struct ckpt_buf *b, const void *src, size_t n)
{
    if (n == 0 || !reserve(b, n))
        return;
    memcpy(b->data + b->len, src, n);
    b->len += n;
}

void ckpt_buf_put_str(struct ckpt_buf *b, const char *s) { ckpt_buf_put(b, s, strlen(s)); }

/* The low n bytes of v, least significant first. */
static void put_le(struct ckpt_buf *b, uint64_t v, size_t n)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (unsigned char)(v >> (8 * i));
    ckpt_buf_put(b, bytes, n);
}

void ckpt_buf_put_u8(struct ckpt_buf *b, uint8_t v) { put_le(b, v, 1); }
void ckpt_buf_put_u16le(struct ckpt_buf *b, uint16_t v) { put_le(b, v, 2); }
void ckpt_buf_put_u32le(struct ckpt_buf *b, uint32_t v) { put_le(b, v, 4); }
void ckpt_buf_put_u64le(struct ckpt_buf *b, uint64_t v) { put_le(b, v, 8); }

void ckpt_buf_printf(struct ckpt_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(b, (size_t)n + 1)) {
        b->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
}

bool ckpt_buf_ok(const struct ckpt_buf *b) { return !b->failed; }

char *ckpt_buf_str(struct ckpt_buf *b)
{
    if (!reserve(b, 1))
        return NULL;
    b->data[b->len] = '\0';
    return (char *)b->data;
}

void ckpt_cursor_init(struct ckpt_cursor *c, const void *base, size_t len)
{
    c->base = base;
    c->pos = 0;
    c->end = len;
    c->failed = false;
}

size_t ckpt_cursor_left(const struct ckpt_cursor *c) { return c->failed ? 0 : c->end - c->pos; }

const unsigned char *ckpt_cursor_bytes(struct ckpt_cursor *c, size_t n)
{
    const unsigned char *at;

    if (c->failed || n > c->end - c->pos) {
        c->failed = true;
        return NULL;
    }
    at = c->base + c->pos;
    c->pos += n;
    return at;
}

static uint64_t get_le(struct ckpt_cursor *c, size_t n)
{
    const unsigned char *p = ckpt_cursor_bytes(c, n);
    uint64_t v = 0;

    for (size_t i = 0; p && i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

uint8_t ckpt_cursor_u8(struct ckpt_cursor *c) { return (uint8_t)get_le(c, 1); }
uint16_t ckpt_cursor_u16le(struct ckpt_cursor *c) { return (uint16_t)get_le(c, 2); }
uint32_t ckpt_cursor_u32le(struct ckpt_cursor *c) { return (uint32_t)get_le(c, 4); }
uint64_t ckpt_cursor_u64le(struct ckpt_cursor *c) { return get_le(c, 8); }

uint64_t ckpt_cursor_u64be(struct ckpt_cursor *c)
{
    const unsigned char *p = ckpt_cursor_bytes(c, 8);
    uint64_t v = 0;

    for (size_t i = 0; p && i < 8; i++)
        v = v << 8 | p[i];
    return v;
}

const unsigned char *ckpt_cursor_line(struct ckpt_cursor *c, size_t *len)
{
    const unsigned char *from, *nl;

    *len = 0;
    if (c->failed || c->pos == c->end)
        goto none;
    from = c->base + c->pos;
    nl = memchr(from, '\n', c->end - c->pos);
    if (!nl)
        goto none;
    *len = (size_t)(nl - from);
    c->pos += *len + 1;
    return from;
none:
    c->failed = true;
    return NULL;
}

void ckpt_cursor_skip(struct ckpt_cursor *c, size_t n) { (void)ckpt_cursor_bytes(c, n); }

/* Skip ASCII but NUL, eight bytes at a time; the caller looks at the remaining bytes singly. */
static const unsigned char *skip_ascii(const unsigned char *s, const unsigned char *end)
{
    const uint64_t each = 0x0101010101010101u;
    uint64_t v;

    for (; end - s >= 8; s += 8) {
        memcpy(&v, s, sizeof v);
        if ((v | (v - each)) & each << 7)
            break;
    }
    return s;
}

size_t ckpt_utf8_prefix(const void *text, size_t len)
{
    const unsigned char *begin = text, *s = begin, *end = s ? s + len : s;

    while (s != end) {
        size_t at = (size_t)(s - begin);
        unsigned char b = *s++;
        unsigned char low = 0x80, high = 0xbf;  /* bounds of the second byte */
        int more;

        if (b == 0)
            return at;
        if (b < 0x80) {
            s = skip_ascii(s, end);
            continue;
        }
        if (b < 0xc2 || b > 0xf4)
            return at;
        more = b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
        if (b == 0xe0)
            low = 0xa0;
        if (b == 0xed)
            high = 0x9f;                        /* surrogates */
        if (b == 0xf0)
            low = 0x90;
        if (b == 0xf4)
            high = 0x8f;
        for (; more > 0; more--) {
            if (s == end || *s < low || *s > high)
                return at;
            s++;
            low = 0x80;
            high = 0xbf;
        }
    }
    return len;
}

bool ckpt_utf8_valid(const void *text, size_t len) { return ckpt_utf8_prefix(text, len) == len; }
