/*
 * post - what the post_processor of a tokenizer.json puts around one text, or around two, and
 * whether offsets leave out white space.
 *
 * Source: huggingface/tokenizers 0.23 tokenizers/src/processors/{template,roberta,bert,
 * sequence}.rs.
 */
#ifndef CKPT_FORMATS_TOKENS_POST_H
#define CKPT_FORMATS_TOKENS_POST_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/tokens/model/vocab.h"

/* One part of a template. */
struct post_part {
    enum { POST_A, POST_B, POST_TOKEN } kind;
    int32_t id;             /* POST_TOKEN */
    int32_t type;           /* of the tokens: which text they count for */
};

struct post_template {
    struct post_part *part;
    size_t            n;
    size_t            n_token;      /* parts that are tokens */
};

struct post {
    struct post_template single, pair;
    bool                 trim, trim_prefix_space;
};

/* The value of "post_processor" (null: texts as they are); memory is v's arena. */
int post_read(struct post *post, const struct vocab *v, const json_t *json,
              struct ckpt_err *err);
/* before (-1: none), the text, after (-1: none); of two texts, each. */
int post_set(struct post *post, const struct vocab *v, int32_t before, int32_t after,
             struct ckpt_err *err);

#endif
