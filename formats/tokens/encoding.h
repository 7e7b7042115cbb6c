/*
 * encoding - the list of tokens that a text became.
 */
#ifndef CKPT_FORMATS_TOKENS_ENCODING_H
#define CKPT_FORMATS_TOKENS_ENCODING_H

#include "formats/tokens/window.h"

/* Ids with where each came from: [start, end) in bytes of the text as it was given. */
struct encoding {
    int32_t *id;
    int64_t *start, *end;       /* 0, 0 for tokens the post-processor added */
    int32_t *type;              /* which text a token counts for, as the post-processor says */
    int8_t  *text;              /* which text it came from: 0, or 1 for the second of a pair; -1
                                   for tokens that were added */
    size_t   n, cap;
};

void encoding_release(struct encoding *enc);
/* Pad to length tokens; longer ones stay. */
int encoding_pad(struct encoding *enc, const struct padding *p, size_t length,
                 struct ckpt_err *err);
/* Room for n more tokens. */
int encoding_reserve(struct encoding *enc, size_t n, struct ckpt_err *err);
/* A token of no text; room must be there. */
void encoding_put_added(struct encoding *enc, int32_t id, int32_t type);
/* Tokens [from, to) of another, which came from text and count for type. */
int encoding_append(struct encoding *enc, const struct encoding *other, size_t from, size_t to,
                    int32_t type, int text, struct ckpt_err *err);

#endif
