/*
 * gguf/of_model - a Hugging Face model as llama.cpp expects it in a GGUF file.
 *
 * Names and layouts by gguf_names, keys by gguf_meta and gguf_tokens from the source's
 * config.json, tokenizer.json, tokenizer_config.json and chat_template.jinja.  Norms, biases and
 * routers are F32 whatever the rest is in, as llama.cpp needs them.  Rules give the dtypes of the
 * others, by the source's names and dtypes; a rule to F32 that packs means Q8_0, or F16 where
 * rows are not multiples of 32.  A stack of experts follows the rule of its first expert.  So
 * that nothing is lost, the file also has these keys, which other readers skip:
 *
 *   ckpt.file.NAME              each of those side files whole ("tokenizer.huggingface.json" for
 *                               tokenizer.json, which is the key of the specification)
 *   ckpt.prefix                 prefix of the names ("model.", or nothing)
 *   ckpt.promoted               lines "name dtype" of tensors that became F32 without a rule
 *
 * Without a config.json, or of a family that is not in the table, tensors keep their names and
 * dtypes, with a note.  A tensor the family's table lacks is refused by name.
 */
#ifndef CKPT_FORMATS_GGUF_OF_MODEL_H
#define CKPT_FORMATS_GGUF_OF_MODEL_H

#include "libckpt/view.h"

/*
 * packs[k]: whether rule k packs; NULL: none does.  Takes src, on failure too.  The facts'
 * "gguf" are the keys for gguf_create.
 */
int gguf_of_model(struct ckpt_source **out, struct ckpt_source *src,
                  const struct ckpt_cast_rule *rule, const bool *packs, size_t n_rule,
                  struct ckpt_err *err);

#endif
