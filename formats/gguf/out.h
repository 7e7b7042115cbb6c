/*
 * gguf/out - write one GGUF file, version 3.
 *
 * Tensors are in the order and under the names of the list.  F32, F16, BF16, F64 and signed
 * integers are written unchanged; an F32 tensor whose `stored` says "Q8_0" is packed, in any
 * order of ranges.  Keys: the record, if there is one; those of the file that the facts'
 * "gguf_from" names (gguf/requantize.h); those of the facts' "gguf", a list of [key, kind,
 * value], where kind is "u32", "f32", "string[]" ... as gguf_kind_name spells them. Same input,
 * same bytes.
 */
#ifndef CKPT_FORMATS_GGUF_OUT_H
#define CKPT_FORMATS_GGUF_OUT_H

#include "libckpt/format.h"

#define GGUF_ALIGNMENT 32u
#define GGUF_MAX_NAME  63u          /* longest name of a tensor that ggml accepts, in bytes */

int gguf_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
