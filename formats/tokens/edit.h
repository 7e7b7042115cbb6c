/*
 * edit - a piece rewritten character by character, with where each new byte came from.
 *
 * A character that replaces one takes its place; one that is put in takes the place of what
 * comes before it.  Source: huggingface/tokenizers 0.23 src/tokenizer/normalizer.rs
 * (NormalizedString::transform).
 */
#ifndef CKPT_FORMATS_TOKENS_EDIT_H
#define CKPT_FORMATS_TOKENS_EDIT_H

#include <stdbool.h>

#include "formats/tokens/piece.h"
#include "formats/tokens/unicode/unicode.h"
#include "libckpt/fail.h"

/* Memory of a rewritten piece: zeroed is empty; reused for piece after piece. */
struct edit_buf {
    unsigned char *byte;
    struct span   *span;
    size_t         n, cap;
    bool           failed;          /* memory was refused; nothing is written after that */
};

struct edit {
    const struct piece *in;
    size_t              pos;        /* bytes of in dealt with */
    struct edit_buf    *out;
};

void edit_buf_release(struct edit_buf *b);
/* Room for n more bytes; false when refused. */
bool edit_more(struct edit_buf *b, size_t n);

/* out must not hold in. */
void edit_begin(struct edit *e, const struct piece *in, struct edit_buf *out);
/* Keep the next n bytes (whole characters) of in. */
void edit_copy(struct edit *e, size_t n);
/* Leave out the next n bytes (whole characters) of in. */
static inline void edit_drop(struct edit *e, size_t n)
{
    e->pos += n;
}
/* Where byte i of p came from. */
struct span edit_span(const struct piece *p, size_t i);
/* cp in place of the next character of in; at its end: where the last one came from. */
void edit_replace(struct edit *e, uint32_t cp);
/* cp as a character that came from there. */
void edit_put(struct edit *e, uint32_t cp, struct span span);
/* cp as a new character. */
void edit_insert(struct edit *e, uint32_t cp);
/* The rest of in, and the result in *p (which may be in). */
int edit_end(struct edit *e, struct piece *p, struct ckpt_err *err);
/* Every byte of *p as the character that spells it in the ByteLevel alphabet. */
int edit_spell_bytes(struct piece *p, struct edit_buf *out, struct ckpt_err *err);

#endif
