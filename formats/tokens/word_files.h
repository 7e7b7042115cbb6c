/*
 * word_files - vocab.txt (BERT), and vocab.json with merges.txt (GPT-2 and its kin), as what a
 * tokenizer.json would say.
 *
 * config: the value of tokenizer_config.json, or NULL.
 * Source: huggingface/transformers 4.44 src/transformers/convert_slow_tokenizer.py.
 */
#ifndef CKPT_FORMATS_TOKENS_WORD_FILES_H
#define CKPT_FORMATS_TOKENS_WORD_FILES_H

#include <jansson.h>

#include "libckpt/file.h"

/* A token a line; the id is the line's number. */
int word_files_vocab_txt(json_t **out, const char *text, size_t n, const json_t *config,
                         struct ckpt_err *err);
/* vocab: the value of vocab.json; merges: the text of merges.txt. */
int word_files_vocab_merges(json_t **out, json_t *vocab, const char *merges, size_t n,
                            const json_t *config, struct ckpt_err *err);
/* What added_tokens.json (NULL: there is none) and the config's added_tokens_decoder add, put
 * into root; special tokens that the config names become such. */
int word_files_added(json_t *root, const json_t *added, const json_t *config,
                     struct ckpt_err *err);

/* The sentinels <extra_id_N> of a config of T5's class, which lie beyond the pieces in reverse,
 * where nothing has put tokens there: a hundred of them, or as many as its "extra_ids" says. */
int word_files_sentinels(json_t *root, const json_t *config, struct ckpt_err *err);

#endif
