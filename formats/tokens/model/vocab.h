/*
 * vocab - the tokens of a tokenizer by id and by their text.
 *
 * Tokens of the model and tokens that were added to it are kept separate: a model splits words
 * into its own tokens only.
 */
#ifndef CKPT_FORMATS_TOKENS_MODEL_VOCAB_H
#define CKPT_FORMATS_TOKENS_MODEL_VOCAB_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/base/map.h"
#include "libckpt/mem.h"

/* One id.  token NULL: the id is not used. */
struct vocab_token {
    const char          *token;     /* as the file spells it */
    const char          *shown;     /* what decoding begins with: token, or an added token as the
                                             normalizer has it */
    const unsigned char *raw;       /* the bytes it stands for in the ByteLevel alphabet */
    uint32_t             len;       /* of token */
    uint32_t             shown_len;
    bool                 literal;   /* raw is shown itself: not spelt in the alphabet */
    bool                 added;     /* found in texts by itself (vocab_add) */
    bool                 special;
};

struct vocab {
    struct ckpt_arena *arena;       /* borrowed */
    struct vocab_token      *token;       /* [n] by id */
    uint32_t          *token_bytes; /* [n] length of raw */
    int32_t            n;
    struct ckpt_map   *by_token;    /* of the model */
    struct ckpt_map   *by_added;
};

/* Ids of the model's vocabulary - an object of ids, or an array of [token, score] whose ids are
 * their places - and room for those of added (array or NULL).  limit: no id is larger. */
int vocab_read(struct vocab *v, struct ckpt_arena *arena, const json_t *vocab,
               const json_t *added, int64_t limit, struct ckpt_err *err);
void vocab_release(struct vocab *v);
/* An id that the model does not have, or its token once more; it is an added one from then on.
 * token is kept. */
int vocab_add(struct vocab *v, int32_t id, const char *token, size_t len, struct ckpt_err *err);
/* Decoding begins with text (kept) instead of the token. */
int vocab_show(struct vocab *v, int32_t id, const char *text, size_t len, struct ckpt_err *err);
/* The id of a token of the model, or -1. */
static inline int32_t vocab_find(const struct vocab *v, const char *s, size_t n)
{
    size_t id = ckpt_map_get(v->by_token, s, n);

    return id == CKPT_MAP_NONE ? -1 : (int32_t)id;
}
/* The id of any token, or -1. */
int32_t vocab_find_any(const struct vocab *v, const char *s, size_t n);
/* Ids of "<0x00>" to "<0xFF>", -1 for those that the model lacks. */
void vocab_find_bytes(const struct vocab *v, int32_t id[256]);

#endif
