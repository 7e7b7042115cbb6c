/*
 * gguf/meta - config.json as the keys of a GGUF file, and back.
 *
 * Keys are lists [key, kind, value] as gguf/out.h takes them.  Values that a family does not have
 * are left out; the complete config.json is stored in the key "ckpt.file.config.json"
 * (of_model.h), which other readers skip.  Source: llama.cpp of 2026-10, conversion
 * (set_gguf_parameters of base.py and the families).
 */
#ifndef CKPT_FORMATS_GGUF_META_H
#define CKPT_FORMATS_GGUF_META_H

#include <jansson.h>

#include "formats/gguf/names.h"
#include "libckpt/fail.h"

/* A list of keys.  failed: out of memory for one; checked once, after the last. */
struct gguf_keys {
    json_t *list;
    bool    failed;
};
/* Append a key; takes value; NULL sets failed. */
void gguf_put(struct gguf_keys *keys, const char *key, const char *kind, json_t *value);
/* The first of "a|b|c" in config that is not null; a dot enters an object.  Or NULL. */
const json_t *gguf_config(const json_t *config, const char *names);
/* The same for an integer that must be present, 1 to 2^31 - 1. */
int gguf_config_int(int64_t *out, const json_t *config, const char *names, struct ckpt_err *err);

/* "a|b": the names in the family's config.json of the field at an offset of struct arch, or "". */
const char *gguf_field(char dst[160], const struct family *f, size_t at);

/* Append general.architecture, general.type and the architecture's own keys. */
int gguf_meta_keys(struct gguf_keys *keys, const struct family *f, const json_t *config,
                   struct ckpt_err *err);
/*
 * The factors by which long contexts divide the frequencies of the rotary embedding, as separate
 * tensors: "rope_freqs.weight" (llama3), "rope_factors_long.weight" and "..._short.weight"
 * (longrope).  Gives arrays of json reals under those names in *out; empty when there are none.
 */
int gguf_meta_factors(json_t **out, const struct family *f, const json_t *config,
                      struct ckpt_err *err);
/* Make a config.json from the keys of a file ("keys" of its facts). */
int gguf_meta_config(json_t **out, const struct family *f, const json_t *keys, bool tied,
                     int64_t vocab_size, struct ckpt_err *err);

#endif
