/*
 * bytelevel - the alphabet in which byte-level vocabularies spell bytes as printable
 * characters.
 *
 * Bytes 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF are the characters of the same number; the other 68,
 * in order, are U+0100, U+0101, ... (space is U+0120).  Source: GPT-2's encoder.py.
 */
#ifndef CKPT_FORMATS_TOKENS_BYTELEVEL_H
#define CKPT_FORMATS_TOKENS_BYTELEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t bytelevel_char(unsigned char byte);
/* The byte that a character spells, or -1. */
int bytelevel_byte(uint32_t cp);
/*
 * The *n bytes that token (valid UTF-8) spells into dst, which has room for len.  A token with
 * a character outside the alphabet stands for its own bytes; false is returned then.
 */
bool bytelevel_decode(unsigned char *dst, size_t *n, const char *token, size_t len);

#endif
