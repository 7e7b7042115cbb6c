/*
 * encoding - the list of tokens that a text became (struct encoding of tokenizer.h), grown.
 */
#ifndef CKPT_FORMATS_TOKENS_ENCODING_H
#define CKPT_FORMATS_TOKENS_ENCODING_H

#include "formats/tokens/tokenizer.h"

/* Room for n more tokens. */
int encoding_reserve(struct encoding *enc, size_t n, struct ckpt_err *err);
/* A token of no text; room must be there. */
void encoding_put_added(struct encoding *enc, int32_t id, int32_t type);
/* Tokens [from, to) of another, which came from text and count for type. */
int encoding_append(struct encoding *enc, const struct encoding *other, size_t from, size_t to,
                    int32_t type, int text, struct ckpt_err *err);

#endif
