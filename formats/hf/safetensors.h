/*
 * safetensors - header and tensors of one file.
 *
 *   offset 0      8 bytes   N, little-endian: bytes of the header
 *   offset 8      N bytes   JSON: {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
 *                           "__metadata__": {text: text}}, blanks around it allowed
 *   offset 8 + N            data; begin and end count from here; tensors tile it exactly
 *
 * Source: huggingface/safetensors 0.8 README.md and safetensors/src/tensor.rs.  Stricter than
 * that reader in one point: a repeated name is refused, not silently replaced.
 */
#ifndef CKPT_FORMATS_HF_SAFETENSORS_H
#define CKPT_FORMATS_HF_SAFETENSORS_H

#include "libckpt/format.h"

#define SAFETENSORS_MAX_HEADER 100000000u

extern const struct ckpt_format ckpt_format_safetensors;

/*
 * Add the tensors of an open file to list (file is borrowed by their fragments).  *metadata, if
 * not NULL, gets __metadata__ as a new reference, or NULL when there is none.
 */
int safetensors_read(struct ckpt_tensors *list, struct ckpt_file *file, json_t **metadata,
                     struct ckpt_err *err);

#endif
