/*
 * pickle/text - the numbers and texts of pickles, as Python spells them.
 *
 * All give a value in the arena, NULL when the arena refuses, or set *why to the fault of the
 * bytes.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_TEXT_H
#define CKPT_FORMATS_CONTAINER_PICKLE_TEXT_H

#include "formats/container/value.h"

#define PICKLE_MAX_INT 256      /* bytes of a number: printing it in decimal takes quadratic time */

/* n bytes of little-endian two's complement: an INT, or a BIGINT as decimal digits. */
struct value *pickle_long(struct ckpt_arena *a, const unsigned char *p, size_t n,
                          const char **why);
/* A line of digits, with or without L after them; for INT also "00" and "01", which are bools. */
struct value *pickle_line_int(struct ckpt_arena *a, const char *p, size_t n, bool bools,
                              const char **why);
struct value *pickle_line_float(struct ckpt_arena *a, const char *p, size_t n, const char **why);
/* A quoted Python 2 string: bytes with escapes.  Text when it is UTF-8, else bytes. */
struct value *pickle_line_string(struct ckpt_arena *a, const char *p, size_t n,
                                 const char **why);
/* Latin-1 with \u and \U of 4 and 8 hex digits ("raw-unicode-escape"). */
struct value *pickle_line_unicode(struct ckpt_arena *a, const char *p, size_t n,
                                  const char **why);
/* Bytes of a Python 2 str: text when they are UTF-8, else bytes. */
struct value *pickle_str8(struct ckpt_arena *a, const void *p, size_t n);

/* Python's "surrogatepass" UTF-8: strict, but with lone surrogates and NUL. */
bool pickle_text_valid(const unsigned char *s, size_t n);

#endif
