/*
 * piece - a stretch of text on its way to tokens, each byte knowing where it came from.
 */
#ifndef CKPT_FORMATS_TOKENS_PIECE_H
#define CKPT_FORMATS_TOKENS_PIECE_H

#include <stddef.h>
#include <stdint.h>

/* [start, end) in bytes of the text as it was given; whole characters. */
struct span { uint32_t start, end; };

struct piece {
    const unsigned char *text;      /* valid UTF-8 */
    size_t               n;
    /* [n], where each byte came from.  NULL: text was not moved, only characters exchanged for
     * others of the same width, so byte i belongs to the given character that holds byte
     * at + i. */
    const struct span   *span;
    size_t               at;        /* where the piece began in the given text */
};

/* Tokens of one piece; valid until the next one of the same run. */
struct word {
    const int32_t  *id;
    const uint32_t *len;            /* bytes of the piece that each covers */
    const uint32_t *start;          /* NULL: each begins where the one before ended */
    size_t          n;
};

#endif
