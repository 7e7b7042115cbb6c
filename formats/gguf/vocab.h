/*
 * gguf/vocab - the tokenizer keys of a GGUF file as tokenizer.json and tokenizer_config.json: for
 * files that contain neither.
 *
 * "gpt2" with its merges becomes byte-level BPE where the file names its pre-tokenizer: GPT-2,
 * Llama 3, Qwen 2, BLOOM and those that split alike.  "llama", SentencePiece's BPE, has scores
 * instead of merges: merges are all pairs of tokens that form another token, in the order of
 * scores, as transformers generates them for such vocabularies.  Source: llama.cpp of 2026-10
 * src/llama-vocab.cpp; transformers 5.23 convert_slow_tokenizer.py (generate_merges),
 * integrations/ggml.py.
 */
#ifndef CKPT_FORMATS_GGUF_VOCAB_H
#define CKPT_FORMATS_GGUF_VOCAB_H

#include <jansson.h>

#include "libckpt/fail.h"
#include "libckpt/file.h"

/*
 * Both are NULL, with a note in the log, for a vocabulary of another kind; CKPT_EFORMAT when
 * lists do not match.  Limit: 256 MiB of tokens, and of merges.
 */
int gguf_vocab(json_t **tokenizer, json_t **settings, struct ckpt_file *file,
               struct ckpt_err *err);

#endif
