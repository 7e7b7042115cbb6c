/*
 * gguf/vocab - the tokenizer keys of a GGUF file as tokenizer.json and tokenizer_config.json: for
 * files that keep neither.
 *
 * "gpt2" with its merges is byte-level BPE again where the file says how text is split: GPT-2,
 * Llama 3, Qwen 2, BLOOM and those that split alike.  "llama", SentencePiece's BPE, has scores in
 * the place of merges: every way to make a token of two others, in the order of scores, as
 * transformers makes them of such vocabularies.
 * Source: llama.cpp of 2026-10 src/llama-vocab.cpp; transformers 5.23 convert_slow_tokenizer.py
 * (generate_merges), integrations/ggml.py.
 */
#ifndef CKPT_FORMATS_GGUF_VOCAB_H
#define CKPT_FORMATS_GGUF_VOCAB_H

#include <jansson.h>

#include "libckpt/fail.h"
#include "libckpt/file.h"

/*
 * Both are NULL, with a note in the log, for a vocabulary of another kind; CKPT_EFORMAT when
 * lists do not fit each other.  Limit: 256 MiB of tokens, and of merges.
 */
int gguf_vocab(json_t **tokenizer, json_t **settings, struct ckpt_file *file,
               struct ckpt_err *err);

#endif
