/*
 * tiktoken - a file of ranks as what a tokenizer.json would say.
 *
 * A line is the base64 of a token's bytes, a space, and its rank, which is its id.  How texts are
 * split into words is not in the file: it is told by how many ranks there are, and files of other
 * numbers are refused.
 * Source: openai/tiktoken 0.9 tiktoken/{load.py, _educational.py}, tiktoken_ext/openai_public.py;
 * the repositories of the models named in tiktoken.c.
 */
#ifndef CKPT_FORMATS_TOKENS_TIKTOKEN_H
#define CKPT_FORMATS_TOKENS_TIKTOKEN_H

#include <jansson.h>
#include <stdbool.h>

#include "libckpt/fail.h"

/* True when the bytes begin as such a file does. */
bool tiktoken_is(const char *bytes, size_t n);
/* *out is a new reference. */
int tiktoken_read(json_t **out, const char *bytes, size_t n, struct ckpt_err *err);

#endif
