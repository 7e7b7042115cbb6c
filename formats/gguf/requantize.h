/*
 * gguf/requantize - one GGUF file from another: other dtypes, some of the tensors, the same keys.
 *
 * Names, keys and vocabulary are copied byte for byte, whatever the architecture;
 * general.file_type follows the dtypes, and keys about a split or about the file's making are
 * dropped.  Q8_0 stays Q8_0; other blocks, which are not packed here, become F32 unless a rule
 * says otherwise.  Rules do not apply to norms, biases and other tensors with one axis.
 */
#ifndef CKPT_FORMATS_GGUF_REQUANTIZE_H
#define CKPT_FORMATS_GGUF_REQUANTIZE_H

#include "libckpt/base/buf.h"
#include "libckpt/view.h"

/* Whether path is a GGUF file, neither in an archive nor a stream. */
bool gguf_is_file(const char *path);
/*
 * src: the part of the file at path to be written.  Rules as for gguf_of_model, by the names in
 * the file.  The facts have "gguf_from": path, and the new keys in "gguf".  Takes src, on failure
 * too.
 */
int gguf_requantize(struct ckpt_source **out, struct ckpt_source *src, const char *path,
               const struct ckpt_cast_rule *rule, const bool *packs, size_t n_rule,
               struct ckpt_err *err);
/* Append the keys that are copied from the file at path, as bytes, and their number. */
int gguf_requantize_keys(struct ckpt_buf *b, uint64_t *n, const char *path, struct ckpt_err *err);

#endif
