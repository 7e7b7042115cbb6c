/*
 * gguf/names - families: how Hugging Face and llama.cpp name and lay out the same weights.
 *
 * A family is a row: its model_type, llama.cpp's name of the architecture, and a list of names
 * with what happens to the numbers.  In names "#" is a layer, "@" an expert, "$" is weight or
 * bias; "^" in front stands outside the family's prefix.
 * Source: llama.cpp of 2026-10, conversion (the families' modify_tensors) and gguf-py 0.19,
 * tensor_mapping.py.
 */
#ifndef CKPT_FORMATS_GGUF_NAMES_H
#define CKPT_FORMATS_GGUF_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gguf_change {
    GGUF_AS_IS,
    GGUF_ROPE_Q,        /* rows of a head: first and second half interleaved */
    GGUF_ROPE_K,        /* the same with the key-value heads */
    GGUF_TRANSPOSED,    /* Conv1D */
    GGUF_QKV,           /* rows [head][3][d] as [3][head][d] */
    GGUF_EXPERT,        /* one of those stacked in a tensor of one more axis */
    GGUF_LEFT_OUT       /* a buffer that llama.cpp computes, or does without */
};

struct gguf_name {
    const char      *hf, *gguf;
    enum gguf_change change;
};

struct gguf_family {
    const char             *model_type;     /* of config.json */
    const char             *architecture;   /* general.architecture */
    const char             *class;          /* architectures[0] of a config.json that is made */
    const char             *prefix;         /* of most names; models saved without a head lack it */
    const struct gguf_name *name;           /* ended by hf NULL */
    bool                    experts;        /* tells families of one architecture apart */
};

/* What the placeholders of a name stand for. */
struct gguf_place {
    int64_t     layer, expert;              /* -1: none */
    const char *what;                       /* "weight", "bias", or NULL */
};

/* By model_type, or NULL. */
const struct gguf_family *gguf_family(const char *model_type);
/* By llama.cpp's name; the one with experts or the one without. */
const struct gguf_family *gguf_family_of(const char *architecture, bool experts);
/* The row of a Hugging Face name, prefixed or not, or NULL. */
const struct gguf_name *gguf_name_of_hf(const struct gguf_family *f, const char *name,
                                        struct gguf_place *at, bool *prefixed);
/* The row of a name in a GGUF file, or NULL. */
const struct gguf_name *gguf_name_of_gguf(const struct gguf_family *f, const char *name,
                                          struct gguf_place *at);
/* Spell a name: prefix goes before one without "^".  False when it does not fit. */
bool gguf_spell(char *dst, size_t size, const char *pattern, const char *prefix,
                const struct gguf_place *at);
/* Tensors llama.cpp wants in F32 whatever the rest is in, by their names in a GGUF file. */
bool gguf_wants_f32(const char *name);

#endif
