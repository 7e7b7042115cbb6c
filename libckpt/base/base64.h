/*
 * base64 - text -> bytes, RFC 4648 section 4, with its padding.
 */
#ifndef CKPT_LIBCKPT_BASE_BASE64_H
#define CKPT_LIBCKPT_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* dst has room for len / 4 * 3 bytes.  False when s is not base64. */
bool base64_decode(unsigned char *dst, size_t *n, const char *s, size_t len);
/* The other way, NUL-terminated; yours (ckpt_free), NULL when refused. */
char *base64_encode(const unsigned char *s, size_t n);

#endif
