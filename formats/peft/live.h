/*
 * peft/live - an adapter as a training program keeps it, under the names that PEFT saves it by.
 *
 * The shards of a run hold the state of the wrapped model: the adapter's name ("default") is a
 * part of every path, and the base's frozen weights may lie among them.
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

/* Which format the shards beside an adapter_config.json are of; NULL where there are none. */
const struct ckpt_format *peft_live_shards(const struct ckpt_place *place);

/* A tensor of the adapter: index in one of the sources it was listed from. */
struct peft_live_item {
    const char *name;           /* as PEFT saves it; of a moment "<name>|exp_avg" */
    size_t      source, index;
};
struct peft_live_list {
    struct peft_live_item *item;        /* ascending by name, moments last */
    size_t                 n;
};

/*
 * The adapter's tensors of n sources; where several have a name the first one counts, and what
 * holds no elements (weights that were not gathered) is in none.  Memory is in arena.
 * CKPT_EUNSUPPORTED when there are several adapters or config is of another kind than LoRA;
 * CKPT_EFORMAT when there is none.
 */
int peft_live_find(struct peft_live_list *out, struct ckpt_source *const *source, size_t n,
                   const json_t *config, struct ckpt_arena *arena, struct ckpt_err *err);

/*
 * Whether a tensor of that name is a wrapped model's: below PEFT's prefix, or a factor with an
 * adapter's name.  Plain <module>.lora_A.weight is not: models have such layers of their own.
 */
bool peft_live_is_adapter(const char *name);

#endif
