/*
 * pickle_int - integers that 64 bits do not hold, and texts that strict UTF-8 does not allow.
 */
#ifndef CKPT_PICKLE_INT_H
#define CKPT_PICKLE_INT_H

#include "formats/container/value.h"

/*
 * n bytes of little-endian two's complement as a VALUE_BIGINT: decimal digits, "?" beyond 256
 * bytes.  NULL when the arena refuses.
 */
struct value *pickle_big_int(struct ckpt_arena *a, const unsigned char *p, size_t n);

/* Python's "surrogatepass" UTF-8: strict, but lone surrogates and NUL may stand in it. */
bool pickle_text_valid(const unsigned char *s, size_t n);

#endif
