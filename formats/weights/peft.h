/*
 * peft - a LoRA adapter directory: adapter_config.json and adapter_model.safetensors or .bin.
 */
#ifndef CKPT_PEFT_H
#define CKPT_PEFT_H

#include "libckpt/format.h"

/* Lists the adapter's own tensors under their names; info has "adapter_config". */
extern const struct ckpt_format ckpt_format_peft;

/*
 * base with adapter folded in: W + scale * (B @ A), range by range in bounded memory, rounded
 * once to the base's dtype.  Takes both sources, on failure too.
 * CKPT_EMISMATCH with both shapes when the adapter belongs to another base, or when one of its
 * tensors matches nothing; CKPT_EUNSUPPORTED names a kind of adapter that is not merged here.
 */
int peft_merge(struct ckpt_source **out, struct ckpt_source *base, struct ckpt_source *adapter,
               struct ckpt_err *err);

#endif
