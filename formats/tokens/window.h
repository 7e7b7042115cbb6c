/*
 * window - the truncation and padding that a tokenizer.json or a caller asks for.
 *
 * Source: huggingface/tokenizers 0.23 tokenizers/src/utils/{truncation,padding}.rs,
 * src/tokenizer/encoding.rs.
 */
#ifndef CKPT_FORMATS_TOKENS_WINDOW_H
#define CKPT_FORMATS_TOKENS_WINDOW_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

enum window_strategy { WINDOW_LONGEST_FIRST, WINDOW_ONLY_FIRST, WINDOW_ONLY_SECOND };

struct truncation {
    size_t               max_length;    /* tokens in all, added ones too */
    size_t               stride;        /* tokens that a window shares with the one before */
    enum window_strategy strategy;
    bool                 left;          /* cut at the beginning */
};

struct padding {
    size_t  length;         /* of every text; 0: of the longest */
    size_t  multiple;       /* round lengths up to one of this; 0: don't */
    int32_t id, type;
    bool    left;           /* in front of the text */
};

/* The values of "truncation" and "padding"; *is says whether there is one. */
int window_read_truncation(struct truncation *t, bool *is, const json_t *json,
                           struct ckpt_err *err);
int window_read_padding(struct padding *p, bool *is, const json_t *json, struct ckpt_err *err);

/* How many of n_a and n_b tokens (pair: there is a second text) stay when n_added come in. */
int window_lengths(const struct truncation *t, size_t n_added, size_t *n_a, size_t *n_b,
                   bool pair, struct ckpt_err *err);
/* Window i of n tokens of which max are kept: [*from, *to).  False when there is no such; window
 * 0 is what is kept.  stride < max. */
bool window_range(const struct truncation *t, size_t n, size_t max, size_t i, size_t *from,
                  size_t *to);
/* What texts of which the longest has n tokens are padded to. */
size_t window_padded_length(const struct padding *p, size_t n);

#endif
