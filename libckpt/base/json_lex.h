/*
 * json_lex - a pull parser for JSON text in memory, for callers that need no tree.
 *
 * Strict, as RFC 8259.  A call that fails gives CKPT_EFORMAT with the text's name, the byte
 * offset and the token that was expected there.
 */
#ifndef CKPT_LIBCKPT_BASE_JSON_LEX_H
#define CKPT_LIBCKPT_BASE_JSON_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "libckpt/fail.h"
#include "libckpt/mem.h"

struct ckpt_json_text { const char *p; size_t n; };     /* not NUL-terminated */

struct ckpt_json_lex {
    const char        *begin, *p, *end;     /* the bytes in memory, and the next one to read */
    uint64_t           base;                /* offset of begin in the whole text */
    const char        *name;                /* of the text, for messages */
    bool               python;              /* NaN, Infinity and -Infinity are values too */
    struct ckpt_arena *arena;               /* holds strings that had escapes; NULL: escapes are
                                               left as written */
    struct ckpt_err   *err;
};

static inline bool ckpt_json_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline void ckpt_json_blanks(struct ckpt_json_lex *l)
{
    while (l->p < l->end && ckpt_json_is_blank(*l->p))
        l->p++;
}

/* Step over c and the blanks around it, if it comes next. */
static inline bool ckpt_json_take(struct ckpt_json_lex *l, char c)
{
    ckpt_json_blanks(l);
    if (l->p == l->end || *l->p != c)
        return false;
    l->p++;
    ckpt_json_blanks(l);
    return true;
}

/* Fail: the next byte does not begin what was wanted. */
int ckpt_json_stop(struct ckpt_json_lex *l, const char *wanted);
static inline int ckpt_json_want(struct ckpt_json_lex *l, char c, const char *wanted)
{
    return ckpt_json_take(l, c) ? 0 : ckpt_json_stop(l, wanted);
}
/* A string, without its quotes; a NUL and a lone surrogate are refused in escapes. */
int ckpt_json_take_string(struct ckpt_json_lex *l, struct ckpt_json_text *out);
/* A member's key and the colon. */
int ckpt_json_take_key(struct ckpt_json_lex *l, struct ckpt_json_text *key);
/* A whole number from 0 to 2^63 - 1. */
int ckpt_json_take_size(struct ckpt_json_lex *l, uint64_t *out);
/* Skip any value, and check its syntax; CKPT_ELIMIT when it is nested deeper than
 * CKPT_JSON_MAX_DEPTH. */
int ckpt_json_skip_value(struct ckpt_json_lex *l);

/* Whether any of the 8 bytes at p is a quote or a backslash. */
static inline bool ckpt_json_ends_in_8(const char *p)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t quote, slash;

    memcpy(&quote, p, 8);
    slash = quote ^ ones * '\\';
    quote ^= ones * '"';
    return (((quote - ones) & ~quote) | ((slash - ones) & ~slash)) & ones << 7;
}

/*
 * Find the closing quote of the string that p is inside of; gives end when the string goes on
 * after it.  Nothing is checked.  *escaped, false at first, is state carried from one block of a
 * text to the next.
 */
static inline const char *ckpt_json_string_end(const char *p, const char *end, bool *escaped)
{
    if (*escaped && p < end)
        *escaped = false, p++;
    for (;; p++) {
        while (end - p >= 8 && !ckpt_json_ends_in_8(p))
            p += 8;
        while (p < end && *p != '"' && *p != '\\')
            p++;
        if (p == end || *p == '"')
            return p;
        if (++p == end) {
            *escaped = true;
            return p;
        }
    }
}

#endif
