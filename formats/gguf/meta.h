/*
 * gguf/meta - config.json as the keys of a GGUF file, and back.
 *
 * Keys are lists [key, kind, value] as gguf/out.h takes them.  Values that a family does not
 * have stay out; what a config.json says beyond this table is kept whole in the key
 * "ckpt.file.config.json" (gguf_model.h), which other readers step over.
 * Source: llama.cpp of 2026-10, conversion (set_gguf_parameters of base.py and the families).
 */
#ifndef CKPT_FORMATS_GGUF_META_H
#define CKPT_FORMATS_GGUF_META_H

#include <jansson.h>

#include "formats/gguf/names.h"
#include "libckpt/fail.h"

/* A list of keys.  failed: memory was refused for one; looked at once, after the last. */
struct gguf_keys {
    json_t *list;
    bool    failed;
};
/* Append a key; takes value, of which NULL is a failure. */
void gguf_put(struct gguf_keys *keys, const char *key, const char *kind, json_t *value);
/* The first of "a|b|c" that config has and is not null; a dot goes into an object.  Or NULL. */
const json_t *gguf_config(const json_t *config, const char *names);
/* The same as an integer that must be there, 1 to 2^31 - 1. */
int gguf_config_int(int64_t *out, const json_t *config, const char *names, struct ckpt_err *err);

/* "a|b": where the family's config.json has the field at an offset of struct arch, or "". */
const char *gguf_field(char dst[160], const struct family *f, size_t at);

/* Append general.architecture, general.type and the architecture's own keys. */
int gguf_meta_keys(struct gguf_keys *keys, const struct family *f, const json_t *config,
                   struct ckpt_err *err);
/*
 * The factors by which long contexts divide the frequencies of the rotary embedding, as tensors
 * of their own: "rope_freqs.weight" (llama3), "rope_factors_long.weight" and "..._short.weight"
 * (longrope).  Gives arrays of json reals under those names in *out; empty when there are none.
 */
int gguf_meta_factors(json_t **out, const struct family *f, const json_t *config,
                      struct ckpt_err *err);
/* Gives a config.json made of the keys of a file ("keys" of its facts). */
int gguf_meta_config(json_t **out, const struct family *f, const json_t *keys, bool tied,
                     int64_t vocab_size, struct ckpt_err *err);

#endif
