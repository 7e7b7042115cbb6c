/*
 * peft/extract - the difference of a tuned model to its base, as an adapter.
 *
 *   a linear layer's weight     lora_A, lora_B: best approximation of that rank, roots of
 *                               the singular values in each, scale 1
 *   its bias                    <module>.base_layer.bias, of all adapted layers (bias: lora_only)
 *   anything else               the whole module (modules_to_save): embeddings, heads, norms
 *
 * Unchanged modules are left out.  Names and settings as peft 0.21 saves them.
 */
#ifndef CKPT_FORMATS_PEFT_EXTRACT_H
#define CKPT_FORMATS_PEFT_EXTRACT_H

#include "libckpt/source.h"

struct peft_extract_opts {
    int64_t     rank;
    const char *base_name;      /* base_model_name_or_path */
    bool        partial;        /* tensors may be missing from full: they are unchanged */
};

/*
 * Factors in f32, copies in full's dtypes; info is a peft source's.  Takes base and full, on
 * failure too.  Reads both to find differences.  CKPT_EMISMATCH names a tensor that only one has,
 * or both shapes; CKPT_ENOTFOUND when nothing differs.
 */
int peft_extract(struct ckpt_source **out, struct ckpt_source *base, struct ckpt_source *full,
                 const struct peft_extract_opts *opts, struct ckpt_err *err);

#endif
