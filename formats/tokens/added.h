/*
 * added - the added tokens of a tokenizer.json, found in text before anything else looks at it.
 *
 * Leftmost, then longest; matches do not overlap.  Source: huggingface/tokenizers 0.21
 * tokenizers/src/tokenizer/added_vocabulary.rs.
 */
#ifndef CKPT_FORMATS_TOKENS_ADDED_H
#define CKPT_FORMATS_TOKENS_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/fail.h"

struct added_token {
    const char *content;        /* not empty; borrowed */
    size_t      len;
    int32_t     id;
    bool        single_word, lstrip, rstrip, normalized, special;
};

struct added;

/* keeps token until freed; takes part only those whose normalized is as asked. */
int added_new(struct added **out, const struct added_token *token, size_t n, bool normalized,
              struct ckpt_err *err);
void added_free(struct added *a);
/*
 * The next added token in s[from, n), s valid UTF-8: its *start and *end with the white space
 * that it swallows, never before from.  NULL when there is none.
 */
const struct added_token *added_next(const struct added *a, const unsigned char *s, size_t n,
                                     size_t from, size_t *start, size_t *end);

#endif
