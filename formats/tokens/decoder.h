/*
 * decoder - tokens -> text, as the decoder of a tokenizer.json says: a list of steps, each making
 * a list of strings from one.  A component type is a row of the table in decoder.c.
 * Source: huggingface/tokenizers 0.23 tokenizers/src/decoders/.
 */
#ifndef CKPT_FORMATS_TOKENS_DECODER_H
#define CKPT_FORMATS_TOKENS_DECODER_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/base/buf.h"

struct decoder;

/* json: the value of "decoder" (null: tokens with spaces between them). */
int decoder_new(struct decoder **out, const json_t *json, struct ckpt_err *err);
void decoder_free(struct decoder *d);
/* True for a lone ByteLevel: text is the bytes that tokens stand for, one after the other. */
bool decoder_is_bytes(const struct decoder *d);

/* Strings one after the other; a zeroed one is empty. */
struct decoder_list {
    struct ckpt_buf text;
    size_t         *end;            /* [n] where each ends */
    size_t          n, cap;
    bool            failed;         /* memory was refused */
};
void decoder_list_init(struct decoder_list *list);
void decoder_list_release(struct decoder_list *list);
void decoder_list_add(struct decoder_list *list, const char *s, size_t n);

/* Append the text of the tokens to out; uses list up. */
int decoder_run(const struct decoder *d, struct decoder_list *list, struct ckpt_buf *out,
                struct ckpt_err *err);
/* WordPiece's cleanup, which clean_up_tokenization_spaces asks for too: " ." is "." and so on. */
void decoder_clean_up(struct ckpt_buf *out, const char *s, size_t n);

#endif
