/*
 * gguf/as_model - a GGUF file as the Hugging Face model that it was made from.
 *
 * The inverse of gguf_of_model: names, layouts, separate experts, and the dtypes that a file
 * written here records.  Side files in such a file are restored byte for byte; for a file of
 * another program a config.json is made from its keys, its vocabulary is dropped, and names are
 * those of the first family of its architecture.  A tensor that the family's table lacks keeps
 * its name, with a warning; a file of an unknown architecture is passed through unchanged, with a
 * note.
 */
#ifndef CKPT_FORMATS_GGUF_AS_MODEL_H
#define CKPT_FORMATS_GGUF_AS_MODEL_H

#include "libckpt/source.h"

/* src must be opened by ckpt_format_gguf.  Takes it, on failure too. */
int gguf_as_model(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err);

#endif
