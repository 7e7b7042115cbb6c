/*
 * gguf/tokens - tokenizer.json and its side files as the tokenizer keys of a GGUF file.
 *
 * Byte-level BPE (GPT-2, BLOOM, Llama 3, Qwen ...) becomes "gpt2" with its merges and llama.cpp's
 * name of its pre-tokenizer; BPE with byte fallback (Llama 2, Mistral, Phi-3) becomes "llama"
 * with scores from which the order of its merges follows.  A pre-tokenizer that has no name here
 * is called "default"; other kinds of tokenizer are left out, both with a note.  tokenizer.json
 * itself is stored as "tokenizer.huggingface.json".  Source: llama.cpp of 2026-10,
 * conversion/base.py; gguf-py 0.19, vocab.py.
 */
#ifndef CKPT_FORMATS_GGUF_TOKENS_H
#define CKPT_FORMATS_GGUF_TOKENS_H

#include "formats/gguf/meta.h"

/* tokenizer.ggml.token_type, as llama.cpp numbers them. */
enum gguf_token {
    GGUF_TOKEN_NORMAL = 1, GGUF_TOKEN_UNKNOWN, GGUF_TOKEN_CONTROL, GGUF_TOKEN_USER_DEFINED,
    GGUF_TOKEN_UNUSED, GGUF_TOKEN_BYTE
};

/* The regular expression of llama.cpp's pre-tokenizer of that name, or NULL. */
const char *gguf_split_regex(const char *name);

/*
 * Append the keys; any of config, tokenizer, settings (tokenizer_config.json) and chat_template
 * may be NULL.  Without a tokenizer, tokenizer.ggml.model is "none".
 */
int gguf_token_keys(struct gguf_keys *keys, const json_t *tokenizer, const json_t *settings,
                    const json_t *config, const char *chat_template, struct ckpt_err *err);

#endif
