/*
 * eval/text_of - the text of generated ids, and texts that end it.
 *
 * Abbreviations: text.
 */
#ifndef CKPT_TOOLS_EVAL_TEXT_OF_H
#define CKPT_TOOLS_EVAL_TEXT_OF_H

#include "formats/tokens/tokenizer.h"
#include "libckpt/fail.h"

/* Texts at which a continuation ends; they lie in the caller's memory. */
struct text_stops {
    const char **text;
    size_t       n, longest;            /* of bytes */
};

/* The text of n ids without special tokens, *out is yours.  An id that the tokenizer has no token
 * for, such as a padding row of the embedding, is a mark: <id:50304>; a NUL is U+FFFD. */
int text_of(const struct tokenizer *t, char **out, const int32_t *id, size_t n,
            struct ckpt_err *err);
/* Cut text before the first of the stops in it; false: there is none. */
bool text_cut(char *text, const struct text_stops *stops);
/* Whether the text of n ids contains a stop, of which the last id is a part. */
bool text_ends(const struct tokenizer *t, const int32_t *id, size_t n,
               const struct text_stops *stops);

#endif
