/*
 * gguf/names - how llama.cpp names and lays out the weights of a family.
 *
 * A role (formats/families/role.h) has one name in a GGUF file, whatever the family; changes of
 * layout follow from the family's choices.  Source: llama.cpp of 2026-10, conversion (the
 * families' modify_tensors) and gguf-py 0.19, tensor_mapping.py.
 */
#ifndef CKPT_FORMATS_GGUF_NAMES_H
#define CKPT_FORMATS_GGUF_NAMES_H

#include "formats/families/family.h"
#include "libckpt/dtype.h"

struct ckpt_layout;
struct ckpt_tensor;

enum gguf_change {
    GGUF_AS_IS,
    GGUF_ROPE_Q,        /* rows of a head: first and second half interleaved */
    GGUF_ROPE_K,        /* the same for the key-value heads */
    GGUF_TRANSPOSED,    /* Conv1D */
    GGUF_QKV,           /* rows [head][3][d] as [3][head][d] */
    GGUF_EXPERT,        /* one of the experts that are stacked in a tensor with one more axis */
    GGUF_LEFT_OUT       /* a buffer that llama.cpp computes or does not need */
};

/* A tensor's name in the other naming: a pattern of family.h, and its placeholders. */
struct gguf_name {
    const char         *pattern;        /* NULL when left out */
    struct family_place at;
    enum gguf_change    change;
    bool                outside;        /* without the family's prefix */
};

/* The family of a model_type if llama.cpp has it, else NULL. */
const struct family *gguf_family(const char *model_type);
/* By llama.cpp's name, with or without experts: the first in the table. */
const struct family *gguf_family_of(const char *architecture, bool experts);
/* The name in a GGUF file of a Hugging Face name, prefixed or not.  False: it has none. */
bool gguf_name_of_hf(struct gguf_name *out, const struct family *f, const char *name);
/* The Hugging Face name of a name in a GGUF file.  False: the family has none. */
bool gguf_name_of_gguf(struct gguf_name *out, const struct family *f, const char *name);
/*
 * Shape and order of a tensor whose layout changes by permutation or transposition: to GGUF, or
 * back.  heads: of the tensor's rows.  CKPT_EFORMAT when they do not divide the rows.
 */
int gguf_layout(struct ckpt_layout *r, enum gguf_change change, const struct ckpt_tensor *t,
                int64_t heads, bool to_gguf, struct ckpt_err *err);
/* The row's numel elements are packed, in blocks of Q8_0. */
void gguf_layout_pack(struct ckpt_layout *r, int64_t numel);

/* Elements of a file in F32 (and all other types), F16, BF16, Q8_0. */
struct gguf_count {
    int64_t numel[4];
};
void gguf_count_add(struct gguf_count *c, const struct ckpt_layout *r, enum ckpt_dtype dtype,
                    int64_t numel);
/* llama.cpp's number of the most frequent of these types: general.file_type. */
int gguf_count_type(const struct gguf_count *c);

/* Whether llama.cpp needs the tensor of that GGUF name in F32 whatever the other types. */
bool gguf_wants_f32(const char *name);

#endif
