/*
 * gguf - a GGUF file as a source: tensors under the file's own names, shapes outermost first.
 *
 * Plain types are read in place.  Quantised ones are dequantised to F32 (struct ckpt_tensor's
 * stored names the blocks); the IQ1, IQ2 and IQ3 types, Q8_K and Q1_0 are listed, but reading
 * their values is refused.  A model split into several files (split.count) is complete when any
 * of them is opened.  Facts: "version", "architecture", "keys": every key with its value, long
 * ones described.  To convert it to a Hugging Face model: as_model.h.
 */
#ifndef CKPT_FORMATS_GGUF_GGUF_H
#define CKPT_FORMATS_GGUF_GGUF_H

#include "formats/gguf/header.h"
#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_gguf;

/* The file of a source of this format, the first file of a split model; NULL for other sources. */
struct ckpt_file *gguf_source_file(const struct ckpt_source *src);

#endif
