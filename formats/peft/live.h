/*
 * peft/live - an adapter in a training run's shards, listed under the names that PEFT saves.
 *
 * The shards of a run hold the state of the wrapped model: every path contains the adapter's name
 * ("default"), and the base's frozen weights may be among them.
 *
 *   <module>.lora_A.default.weight                      <module>.lora_A.weight
 *   <module>.lora_embedding_A.default                   <module>.lora_embedding_A
 *   <module>.lora_magnitude_vector.default.weight       <module>.lora_magnitude_vector
 *   <module>.modules_to_save.default.<rest>             <module>.<rest>
 *   <module>.token_adapter.trainable_tokens_delta.default   ... without .default
 *   <module>.original_module.*, .trainable_tokens_original.*   not saved
 *   <module>.base_layer.*, anything else                saved where it was trained
 *
 * Source: peft 0.21 utils/save_and_load.py get_peft_model_state_dict, utils/other.py
 * ModulesToSaveWrapper and TrainableTokensWrapper.
 */
#ifndef CKPT_FORMATS_PEFT_LIVE_H
#define CKPT_FORMATS_PEFT_LIVE_H

#include "libckpt/format.h"

/* The format of the shards beside an adapter_config.json; NULL where there are none. */
const struct ckpt_format *peft_live_shards(const struct ckpt_place *place);

/* A tensor of the adapter: its index in one of the given sources. */
struct peft_live_item {
    const char *name;           /* as PEFT saves it; for a moment "<name>|exp_avg" */
    size_t      source, index;
};
struct peft_live_list {
    struct peft_live_item *item;        /* ascending by name, moments last */
    size_t                 n;
};

/*
 * The adapter's tensors of n sources; where several have a name the first one is used, and
 * tensors without elements (weights that were not gathered) are ignored.  Memory is in arena.
 * CKPT_EUNSUPPORTED when there are several adapters or config is not LoRA; CKPT_EFORMAT when
 * there is no adapter.
 */
int peft_live_find(struct peft_live_list *out, struct ckpt_source *const *source, size_t n,
                   const json_t *config, struct ckpt_arena *arena, struct ckpt_err *err);

/*
 * Whether a name is a tensor of a wrapped model: below PEFT's prefix, or a factor with an
 * adapter's name.  Plain <module>.lora_A.weight is not: models can have layers of that name.
 */
bool peft_live_is_adapter(const char *name);

#endif
