/*
 * tokenizer_parts - what a tokenizer is made of: shared by the room that reads it from
 * tokenizer.json and the room that runs it.
 *
 * Order of encoding: added tokens of the raw text, then (per piece between them) added tokens
 * of the normalised text, pre-tokenizer, model; then the post-processor.
 */
#ifndef CKPT_TOKENIZER_PARTS_H
#define CKPT_TOKENIZER_PARTS_H

#include <pthread.h>

#include "formats/tokens/added.h"
#include "formats/tokens/bpe.h"
#include "formats/tokens/pretok.h"
#include "formats/tokens/tokenizer.h"
#include "libckpt/map.h"

/* One id.  token NULL: the id is not used. */
struct token {
    const char          *token;     /* as the file spells it */
    const unsigned char *raw;       /* the bytes it stands for when decoding */
    uint32_t             len;       /* of token */
    bool                 literal;   /* raw is token itself: not spelt in the byte alphabet */
    bool                 special;
};

/* What the post-processor does: ids around the text, offsets without white space. */
struct post {
    int32_t *before, *after;
    size_t   n_before, n_after;
    bool     trim, trim_prefix_space;
};

struct workspace {
    struct workspace  *next;
    struct pretok_run *pretok;
    struct bpe_run    *bpe;
};

struct tokenizer {
    struct ckpt_arena   arena;
    struct token       *token;          /* [n] by id */
    uint32_t           *token_bytes;    /* [n] length of raw */
    int32_t             n;
    struct ckpt_map    *by_token;
    struct ckpt_map    *by_raw;         /* only for ignore_merges */
    struct added_token *added;
    size_t              n_added;
    struct added       *added_raw, *added_normalized;
    struct pretok      *pretok;
    struct bpe         *bpe;
    struct post         post;
    int32_t             bos, eos, pad;
    pthread_mutex_t     lock;           /* of idle */
    struct workspace   *idle;           /* as many as threads encoded at once */
};

/* Fill a zeroed t from the text of a tokenizer.json. */
int tokenizer_json_read(struct tokenizer *t, struct ckpt_file *file, struct ckpt_err *err);
/* The value of "post_processor", after the vocabulary. */
int tokenizer_post_read(struct tokenizer *t, const json_t *json, struct ckpt_err *err);
/* Take over what tokenizer_config.json or special_tokens_map.json says. */
int tokenizer_json_config(struct tokenizer *t, struct ckpt_file *file, struct ckpt_err *err);

#endif
