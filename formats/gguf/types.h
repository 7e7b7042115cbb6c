/*
 * gguf/types - ggml's element types: numbers, names, block sizes, and their values in f32.
 *
 * A quantised type packs blocks of 32 to 256 neighbouring elements of a row.  Values come out
 * bit for bit as ggml's own to_float gives them: f32 arithmetic in the same order, no
 * contraction.  Sources: ggml (ggml.h, ggml-quants.c), gguf-py 0.19 (constants.py, quants.py).
 */
#ifndef CKPT_FORMATS_GGUF_TYPES_H
#define CKPT_FORMATS_GGUF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/dtype.h"

#define GGUF_Q8_0       8u
#define GGUF_Q8_0_N     32          /* elements of a block */
#define GGUF_Q8_0_BYTES 34
#define GGUF_MAX_BLOCK  256         /* elements of any block */

struct gguf_type {
    const char     *name;           /* "Q4_K" */
    uint16_t        n;              /* elements of a block, 1: a plain type; 0: size unknown */
    uint16_t        bytes;          /* of a block */
    enum ckpt_dtype dtype;          /* of the values: F32 for a quantised type */
    /* Values of one block; NULL: a plain type, or dequantising it is not implemented. */
    void (*values)(float *dst, const unsigned char *block);
};

/* By ggml's number; NULL when there is none. */
const struct gguf_type *gguf_type(uint32_t number);
/* The number of a plain dtype, or UINT32_MAX. */
uint32_t gguf_type_of(enum ckpt_dtype dtype);
/* Pack 32 elements into a block of Q8_0, as ggml's reference quantisation does it. */
void gguf_q8_0_pack(unsigned char block[GGUF_Q8_0_BYTES], const float *src);
void gguf_q8_0_values(float *dst, const unsigned char *block);
/* Replace n values, a multiple of 32, by their values after packing to Q8_0. */
void gguf_q8_0_round(float *x, size_t n);

#endif
