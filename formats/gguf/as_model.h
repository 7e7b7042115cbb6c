/*
 * gguf/as_model - a GGUF file seen as the Hugging Face model it was made of.
 *
 * The way of gguf_of_model backwards: names, layouts, experts apart, and the dtypes that a file
 * written here notes down.  Side files that such a file keeps come back byte for byte; for one
 * of other make a config.json is made of its keys, its vocabulary is left behind, and names are
 * those of the first family of its architecture.  What the family's table lacks keeps its name,
 * with a warning; a file of another architecture is passed through as it is, with a note.
 */
#ifndef CKPT_FORMATS_GGUF_AS_MODEL_H
#define CKPT_FORMATS_GGUF_AS_MODEL_H

#include "libckpt/source.h"

/* src is one that ckpt_format_gguf opened.  Takes it, on failure too. */
int gguf_as_model(struct ckpt_source **out, struct ckpt_source *src, struct ckpt_err *err);

#endif
