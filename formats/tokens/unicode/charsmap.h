/*
 * charsmap - sentencepiece's precompiled_charsmap: which sequences of bytes become which others.
 *
 * Layout: u32 LE bytes of the trie; that many bytes of u32 LE units of a double array; then
 * replacements, each ended by NUL.  Of a unit u: has_leaf is bit 8, label u & 0x800000ff, value
 * u & 0x7fffffff, offset (u >> 10) << ((u & 0x200) >> 6).
 * Sources: sentencepiece src/normalizer.cc (2734490); spm_precompiled 0.1.4 src/lib.rs.
 */
#ifndef CKPT_FORMATS_TOKENS_UNICODE_CHARSMAP_H
#define CKPT_FORMATS_TOKENS_UNICODE_CHARSMAP_H

#include <stdbool.h>

#include "formats/tokens/edit.h"

struct charsmap;

/* blob is copied. */
int charsmap_new(struct charsmap **out, const void *blob, size_t n, struct ckpt_err *err);
/* The same of a "precompiled_charsmap", which is base64. */
int charsmap_parse(struct charsmap **out, const char *text, struct ckpt_err *err);
void charsmap_free(struct charsmap *map);
/*
 * The shortest (else the longest) sequence at the start of s[0, n) that is replaced: its bytes,
 * 0 when there is none, and what stands for it.
 */
size_t charsmap_find(const struct charsmap *map, const unsigned char *s, size_t n, bool shortest,
                     const unsigned char **by, size_t *by_len);
/*
 * As the Precompiled normalizer of a tokenizer.json uses it: whole grapheme clusters of less than
 * six bytes, else characters, by the shortest sequence.  buf must not hold *p.
 */
int charsmap_apply(const struct charsmap *map, struct piece *p, struct edit_buf *buf,
                   struct ckpt_err *err);

#endif
