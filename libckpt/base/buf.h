/*
 * buf - a growable byte buffer with a fixed limit, and the cursor with which every parser reads
 * foreign bytes.
 *
 * Abbreviations: cursor, utf8 (buf), f32, f16, bf16, f8 (half).
 */
#ifndef CKPT_LIBCKPT_BASE_BUF_H
#define CKPT_LIBCKPT_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

/*
 * Growable bytes.  Errors are sticky: after a refusal (limit or memory) further puts do nothing
 * and ckpt_buf_ok is false.  A writer can put everything first and check once at the end.
 */
struct ckpt_buf {
    unsigned char *data;
    size_t         len;
    size_t         cap;
    size_t         limit;       /* bytes; SIZE_MAX for none */
    bool           failed;
};

void ckpt_buf_init(struct ckpt_buf *b, size_t limit);
void ckpt_buf_release(struct ckpt_buf *b);
void ckpt_buf_put(struct ckpt_buf *b, const void *src, size_t n);
void ckpt_buf_put_str(struct ckpt_buf *b, const char *s);
void ckpt_buf_put_u8(struct ckpt_buf *b, uint8_t v);
void ckpt_buf_put_u16le(struct ckpt_buf *b, uint16_t v);
void ckpt_buf_put_u32le(struct ckpt_buf *b, uint32_t v);
void ckpt_buf_put_u64le(struct ckpt_buf *b, uint64_t v);
void ckpt_buf_printf(struct ckpt_buf *b, const char *fmt, ...) CKPT_PRINTF(2, 3);
bool ckpt_buf_ok(const struct ckpt_buf *b);
/* The bytes as a string; the terminator is not counted in len.  NULL when the buffer failed. */
char *ckpt_buf_str(struct ckpt_buf *b);

/*
 * A bounded cursor over bytes in memory.  Reading past the end sets failed and returns zeros;
 * nothing moves after that.
 */
struct ckpt_cursor {
    const unsigned char *base;
    size_t               pos;
    size_t               end;
    bool                 failed;
};

void ckpt_cursor_init(struct ckpt_cursor *c, const void *base, size_t len);
size_t ckpt_cursor_left(const struct ckpt_cursor *c);
uint8_t ckpt_cursor_u8(struct ckpt_cursor *c);
uint16_t ckpt_cursor_u16le(struct ckpt_cursor *c);
uint32_t ckpt_cursor_u32le(struct ckpt_cursor *c);
uint64_t ckpt_cursor_u64le(struct ckpt_cursor *c);
uint64_t ckpt_cursor_u64be(struct ckpt_cursor *c);
/* Borrow n bytes and step over them; NULL (and failed) when fewer are left. */
const unsigned char *ckpt_cursor_bytes(struct ckpt_cursor *c, size_t n);
/* Borrow a line up to '\n' (excluded, stepped over); NULL and failed when there is none. */
const unsigned char *ckpt_cursor_line(struct ckpt_cursor *c, size_t *len);
void ckpt_cursor_skip(struct ckpt_cursor *c, size_t n);

/* True when s[0..len) is strict UTF-8: no overlong form, no surrogate, no NUL. */
bool ckpt_utf8_valid(const void *s, size_t len);
/* How many bytes at the start of s are strict UTF-8. */
size_t ckpt_utf8_prefix(const void *s, size_t len);

#endif
