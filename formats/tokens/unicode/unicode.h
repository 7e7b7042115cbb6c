/*
 * unicode - UTF-8 and the character classes the splitters ask for.
 *
 * Classes are Unicode 16's, whatever utf8proc's own version.  White space is the property
 * White_Space: the set is spelt out because libraries disagree about U+180E, which is none.
 *
 * Abbreviations: utf8 (UTF-8).
 */
#ifndef CKPT_FORMATS_TOKENS_UNICODE_UNICODE_H
#define CKPT_FORMATS_TOKENS_UNICODE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/base/buf.h"

enum unicode_class { UNICODE_OTHER, UNICODE_LETTER, UNICODE_NUMBER, UNICODE_SPACE };

/* \p{L}, \p{N}, white space, or none of them. */
enum unicode_class unicode_class_of(uint32_t cp);
bool unicode_is_space(uint32_t cp);
/* \w of the Rust regex crate: letters, marks, decimal digits, connectors, joiners. */
bool unicode_is_word(uint32_t cp);

/* What follows is as the reference's libraries have it, whose editions of Unicode differ. */

/* Came after Unicode 9.0, and normalization concerns it. */
bool unicode_is_after_9(uint32_t cp);
/* ASCII punctuation and symbols, category P. */
bool unicode_is_punctuation(uint32_t cp);
/* Categories P and S of Unicode 17. */
bool unicode_is_p(uint32_t cp);
bool unicode_is_symbol(uint32_t cp);
/* Categories Cc, Cf and Co. */
bool unicode_is_control(uint32_t cp);
/* Category Mn. */
bool unicode_is_nonspacing(uint32_t cp);
/* Category M. */
bool unicode_is_mark(uint32_t cp);
/* Category N. */
bool unicode_is_numeric(uint32_t cp);
/* Lower case; U+0130 becomes "i" and a dot above it, of which this is the first. */
uint32_t unicode_lower(uint32_t cp);
/* Title case: upper case, but for ligatures. */
uint32_t unicode_title(uint32_t cp);
/* A number for each script, 0 for none; Hiragana and Katakana count as Han. */
uint8_t unicode_script(uint32_t cp);

/* Bytes of the character that starts with byte b of valid UTF-8. */
static inline size_t utf8_width(unsigned char b)
{
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}

/* The character at s, which is valid UTF-8; *width gets its bytes. */
static inline uint32_t utf8_get(const unsigned char *s, size_t *width)
{
    uint32_t b = s[0];

    *width = utf8_width(s[0]);
    if (b < 0x80)
        return b;
    if (b < 0xe0)
        return (b & 0x1f) << 6 | (s[1] & 0x3fu);
    if (b < 0xf0)
        return (b & 0x0f) << 12 | (s[1] & 0x3fu) << 6 | (s[2] & 0x3fu);
    return (b & 0x07) << 18 | (s[1] & 0x3fu) << 12 | (s[2] & 0x3fu) << 6 | (s[3] & 0x3fu);
}

/* Write cp to dst (4 bytes of room); returns its bytes. */
size_t utf8_put(unsigned char *dst, uint32_t cp);
/* Bytes at the start of s that are strict UTF-8 (no overlong form, no surrogate; NUL passes):
 * len when all are. */
size_t utf8_valid_prefix(const unsigned char *s, size_t len);
/* Append s with each maximal ill-formed part as one U+FFFD, as Rust and Python do it. */
void utf8_put_lossy(struct ckpt_buf *out, const unsigned char *s, size_t len);

#endif
