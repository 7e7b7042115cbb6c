/*
 * hf/dir - a model directory as transformers keeps it.
 *
 *   model.safetensors, or model.safetensors.index.json and its shards,
 *   or pytorch_model.bin, or pytorch_model.bin.index.json and its shards;
 *   config.json, tokenizer and other side files
 *
 * The index decides: every file it names must exist, every tensor it maps must be in that file,
 * and a tensor in a shard that the index does not name is an error.  Source: transformers 5.17
 * modeling_utils.py; huggingface_hub serialization/_base.py.
 */
#ifndef CKPT_FORMATS_HF_DIR_H
#define CKPT_FORMATS_HF_DIR_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_hf;

/* The directory of a source opened by this format, valid as long as it is open; else NULL. */
struct ckpt_dir *hf_source_dir(const struct ckpt_source *src);

#endif
