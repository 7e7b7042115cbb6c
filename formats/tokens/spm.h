/*
 * spm - a sentencepiece model (spiece.model, tokenizer.model) as what a tokenizer.json would say.
 *
 * A protobuf ModelProto: 1 pieces {1 text, 2 score, 3 type}; 2 trainer_spec {3 model_type
 * (1 unigram, 2 bpe), 24 treat_whitespace_as_suffix, 35 byte_fallback, 41 bos_id, 42 eos_id,
 * 43 pad_id, 44 unk_surface}; 3 normalizer_spec {2 precompiled_charsmap, 3 add_dummy_prefix,
 * 4 remove_extra_whitespaces, 5 escape_whitespaces}.  The id of a piece is its place.
 *
 * Texts become the ids that sentencepiece itself gives: the character map is applied by its
 * longest sequence, scores are summed in float, and control pieces are not found in text.
 * Source: google/sentencepiece 2734490 src/{sentencepiece_model.proto, normalizer.cc,
 * unigram_model.cc, bpe_model.cc, sentencepiece_processor.cc}.
 */
#ifndef CKPT_FORMATS_TOKENS_SPM_H
#define CKPT_FORMATS_TOKENS_SPM_H

#include <jansson.h>

#include "formats/tokens/norm_steps.h"
#include "libckpt/fail.h"

/* Ids that the model names, -1 when it has none. */
struct spm_ids { int32_t bos, eos, pad; };

/* bytes[n) is the file; *out is a new reference. */
int spm_read(json_t **out, struct spm_ids *ids, const unsigned char *bytes, size_t n,
             struct ckpt_err *err);

/* The normalizer step of such a model, and its value in JSON: {"type": "SentencePiece", ...}. */
int spm_norm_parse(struct norm_step *s, const json_t *json, struct ckpt_err *err);
norm_fn spm_norm;

#endif
