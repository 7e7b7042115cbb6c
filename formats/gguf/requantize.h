/*
 * gguf/requantize - a GGUF file as another: other dtypes, some of the tensors, the same keys.
 *
 * Names, keys and vocabulary stay as they are, byte for byte and of whatever architecture;
 * general.file_type follows the dtypes, and what told of a split or of the file's making is left
 * out.  Q8_0 stays Q8_0; other blocks, which are not packed here, become F32 unless a rule says
 * otherwise.  Norms, biases and whatever has one axis keep their dtype under rules.
 */
#ifndef CKPT_FORMATS_GGUF_REQUANTIZE_H
#define CKPT_FORMATS_GGUF_REQUANTIZE_H

#include "libckpt/base/buf.h"
#include "libckpt/view.h"

/* Whether path is such a file, in no archive and no stream. */
bool gguf_is_file(const char *path);
/*
 * src: what is to be written of the file at path.  Rules as for gguf_of_model, by the names in
 * the file.  The facts say "gguf_from": path, beside a "gguf" of what is new.  Takes src, on
 * failure too.
 */
int gguf_requantize(struct ckpt_source **out, struct ckpt_source *src, const char *path,
               const struct ckpt_cast_rule *rule, const bool *packs, size_t n_rule,
               struct ckpt_err *err);
/* Append the keys that are passed on from the file at path, as bytes, and how many they are. */
int gguf_requantize_keys(struct ckpt_buf *b, uint64_t *n, const char *path, struct ckpt_err *err);

#endif
