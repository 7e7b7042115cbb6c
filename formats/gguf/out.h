/*
 * gguf/out - writing one GGUF file, version 3.
 *
 * Tensors lie in the order of the list, under their names there.  F32, F16, BF16, F64 and signed
 * integers are written as they are; an F32 tensor whose `stored` says "Q8_0" is packed, in any
 * order of ranges.  Keys: the record, when there is one; those of the file that the facts'
 * "gguf_from" names (gguf/requantize.h); those of the facts' "gguf", a list of [key, kind, value],
 * where kind is "u32", "f32", "string[]" ... as gguf_kind_name spells them.
 * Same input, same bytes.
 */
#ifndef CKPT_FORMATS_GGUF_OUT_H
#define CKPT_FORMATS_GGUF_OUT_H

#include "libckpt/format.h"

#define GGUF_ALIGNMENT 32u
#define GGUF_MAX_NAME  63u          /* bytes of a tensor's name that ggml takes */

int gguf_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
