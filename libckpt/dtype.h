/*
 * dtype - element types: canonical names (safetensors' spelling), widths, aliases of others.
 *
 * Little-endian in memory and on disk.  Sub-byte types are listed for inspection and are never
 * converted; their width is given in bits.
 */
#ifndef CKPT_LIBCKPT_DTYPE_H
#define CKPT_LIBCKPT_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/api.h"

CKPT_BEGIN_C

enum ckpt_dtype {
    CKPT_DTYPE_NONE = 0,
    CKPT_BOOL, CKPT_U8, CKPT_I8, CKPT_U16, CKPT_I16, CKPT_U32, CKPT_I32, CKPT_U64, CKPT_I64,
    CKPT_F16, CKPT_BF16, CKPT_F32, CKPT_F64,
    CKPT_F8_E4M3, CKPT_F8_E5M2, CKPT_F8_E4M3FNUZ, CKPT_F8_E5M2FNUZ, CKPT_F8_E8M0,
    CKPT_C32, CKPT_C64, CKPT_C128,
    CKPT_F4, CKPT_F6_E2M3, CKPT_F6_E3M2,
    CKPT_QI8, CKPT_QU8, CKPT_QI32,                  /* torch's quantised, recognised by name */
    CKPT_DTYPE_COUNT
};

enum ckpt_dtype_class { CKPT_CLASS_INT, CKPT_CLASS_FLOAT, CKPT_CLASS_COMPLEX, CKPT_CLASS_OTHER };

/* Bytes per element; 0 for NONE and for sub-byte types. */
size_t ckpt_dtype_size(enum ckpt_dtype t);
unsigned ckpt_dtype_bits(enum ckpt_dtype t);
/* "BF16", "F32", ...; "?" for NONE. */
const char *ckpt_dtype_name(enum ckpt_dtype t);
/* torch's name ("bfloat16", "float8_e4m3fn"), or NULL where torch has none. */
const char *ckpt_dtype_torch_name(enum ckpt_dtype t);
/* torch's storage class ("BFloat16Storage"), or NULL where torch has none. */
const char *ckpt_dtype_torch_storage(enum ckpt_dtype t);
enum ckpt_dtype_class ckpt_dtype_class(enum ckpt_dtype t);
/* Any known spelling, without regard to case: "BF16", "bfloat16", "torch.bfloat16",
 * "BFloat16Storage", "half", "fp16".  CKPT_DTYPE_NONE when unknown. */
enum ckpt_dtype ckpt_dtype_parse(const char *name);

CKPT_END_C

#endif
