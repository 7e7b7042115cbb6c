/*
 * pretok - splitting text into words, as the pre_tokenizer of a tokenizer.json says.
 *
 * A pre-tokenizer is a list of steps, each cutting or rewriting the pieces of the one before.  A
 * component type is a row of the table in pretok.c.
 * Source: huggingface/tokenizers 0.23 tokenizers/src/pre_tokenizers/.
 */
#ifndef CKPT_FORMATS_TOKENS_PRETOK_H
#define CKPT_FORMATS_TOKENS_PRETOK_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/tokens/piece.h"
#include "libckpt/fail.h"

struct pretok;
struct pretok_run;                  /* memory of splitting: one a thread */

typedef int pretok_emit_fn(void *ctx, const struct piece *piece, struct ckpt_err *err);

/* json: the value of "pre_tokenizer" (null gives the text as one piece). */
int pretok_new(struct pretok **out, const json_t *json, struct ckpt_err *err);
void pretok_free(struct pretok *p);
/* When the last step spells bytes in the ByteLevel alphabet, take it away and return true: the
 * model then works on the bytes themselves. */
bool pretok_take_bytes(struct pretok *p);
/* Set add_prefix_space of a lone ByteLevel, as tokenizer_config.json may ask. */
void pretok_set_prefix_space(struct pretok *p, bool on);

int pretok_run_new(struct pretok_run **out, const struct pretok *p, struct ckpt_err *err);
void pretok_run_free(struct pretok_run *run);
/* Call emit for each piece in order; never for an empty one. */
int pretok_split(const struct pretok *p, struct pretok_run *run, const struct piece *piece,
                 pretok_emit_fn *emit, void *ctx, struct ckpt_err *err);

#endif
