/*
 * tokenizer_parts - what a tokenizer is made of: shared by the rooms that read it from files and
 * the room that runs it.
 *
 * Order of encoding: added tokens of the raw text; per piece between them the normalizer, added
 * tokens of the normalised text, pre-tokenizer, model; then the post-processor.
 */
#ifndef CKPT_FORMATS_TOKENS_TOKENIZER_PARTS_H
#define CKPT_FORMATS_TOKENS_TOKENIZER_PARTS_H

#include <pthread.h>

#include "formats/tokens/added.h"
#include "formats/tokens/decoder.h"
#include "formats/tokens/model/model.h"
#include "formats/tokens/norm.h"
#include "formats/tokens/post.h"
#include "formats/tokens/pretok.h"
#include "formats/tokens/tokenizer.h"
#include "formats/tokens/model/vocab.h"

struct workspace {
    struct workspace  *next;
    struct norm_run   *norm;
    struct pretok_run *pretok;
    struct model_run  *model;
};

struct tokenizer {
    struct ckpt_arena   arena;
    struct vocab        vocab;
    struct added_token *added;
    size_t              n_added;
    struct added       *added_raw, *added_normalized;
    struct norm        *norm;
    struct pretok      *pretok;
    struct token_model  model;
    struct post         post;
    struct decoder     *decoder;
    bool                bytes;              /* the model works on bytes that ByteLevel spells */
    bool                truncates, pads;    /* the file says so */
    struct truncation   truncation;
    struct padding      padding;
    bool                clean_up;           /* decoded text: clean_up_tokenization_spaces */
    int32_t             bos, eos, pad, unk;
    bool                pads_left;          /* padding_side */
    unsigned char       digest[16];
    pthread_mutex_t     lock;               /* of idle */
    struct workspace   *idle;               /* as many as threads encoded at once */
};

/* A tokenizer of what a tokenizer.json holds; limit: no id is larger.  root is borrowed. */
int tokenizer_from_json(struct tokenizer **out, const json_t *root, int64_t limit,
                        struct ckpt_err *err);
/* Take over what tokenizer_config.json says.  ends: the files of the tokenizer itself don't tell
 * which tokens go around a text, so that the class does. */
int tokenizer_config(struct tokenizer *t, const json_t *config, bool ends,
                     struct ckpt_err *err);
/* What the two functions of tokenizer.h say, with the tokenizer's own parts at hand. */
int tokenizer_json_read(struct tokenizer *t, const json_t *root, int64_t limit,
                        struct ckpt_err *err);

#endif
