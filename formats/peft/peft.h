/*
 * peft - a LoRA adapter directory: adapter_config.json and adapter_model.safetensors or .bin.
 */
#ifndef CKPT_FORMATS_PEFT_PEFT_H
#define CKPT_FORMATS_PEFT_PEFT_H

#include "libckpt/format.h"

/* Lists the adapter's own tensors under their names; info has "adapter_config". */
extern const struct ckpt_format ckpt_format_peft;

/* The directory of a source opened by this format, valid as long as it is open; NULL for shards. */
struct ckpt_dir *peft_source_dir(const struct ckpt_source *src);

/* One of several adapters for one base. */
struct peft_adapter {
    struct ckpt_source *source;
    const char         *name;           /* for messages */
    double              weight;         /* factor of its delta; 1: all of it */
};

/*
 * base with the adapters folded in: W + sum of weight * (W' - W), where W' is the result of one
 * adapter alone (W + scale * (B @ A) for LoRA), range by range in bounded memory, rounded once to
 * the base's dtype.  Weights are those of PEFT's add_weighted_adapter with combination_type "cat"
 * or an exact "svd": deltas add up, without cross terms.  A weight below 0 subtracts a delta;
 * adapters with full copies, magnitudes (DoRA) or token rows cannot have one.  Takes all sources,
 * on failure too.  CKPT_EMISMATCH with both shapes when an adapter belongs to another base, or
 * when one of its tensors matches nothing; CKPT_EUNSUPPORTED names a kind of adapter that cannot
 * be merged here.
 */
int peft_merge(struct ckpt_source **out, struct ckpt_source *base,
               const struct peft_adapter *adapter, size_t n, struct ckpt_err *err);

#endif
