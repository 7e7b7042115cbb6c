/*
 * norm - the normalizer of a tokenizer.json: a list of steps, each rewriting a piece.
 *
 * A component type is a row of the table in norm.c.
 * Source: huggingface/tokenizers 0.23 tokenizers/src/normalizers/.
 */
#ifndef CKPT_FORMATS_TOKENS_NORM_H
#define CKPT_FORMATS_TOKENS_NORM_H

#include <jansson.h>
#include <stdbool.h>

#include "formats/tokens/piece.h"
#include "libckpt/fail.h"

struct norm;
struct norm_run;                    /* memory of rewriting: one a thread */

/* json: the value of "normalizer" (null: text stays as it is). */
int norm_new(struct norm **out, const json_t *json, struct ckpt_err *err);
void norm_free(struct norm *n);
/* True when no text is changed. */
bool norm_is_empty(const struct norm *n);

int norm_run_new(struct norm_run **out, const struct norm *n, struct ckpt_err *err);
void norm_run_free(struct norm_run *run);
/* *p, rewritten; it stays as it is or lies in run until the next call. */
int norm_apply(const struct norm *n, struct norm_run *run, struct piece *p,
               struct ckpt_err *err);

#endif
