/*
 * peft/names - find the tensor of a base that an adapter's name refers to.
 *
 * The module path in an adapter is that of the model it was trained on; in the base's file the
 * leading parts may differ.  Source: peft 0.21 utils/save_and_load.py, transformers 5.17 (renamed
 * wrappers of multi-modal models).
 */
#ifndef CKPT_FORMATS_PEFT_NAMES_H
#define CKPT_FORMATS_PEFT_NAMES_H

#include <stdbool.h>

#include "formats/families/family.h"
#include "libckpt/source.h"

/*
 * The module of an adapter's tensor <module><tail>, named as in the base: without
 * "base_model.model." and the wrappers' "base_layer".
 */
void peft_module_of(char module[CKPT_MAX_NAME + 1], const char *name, const char *tail);
/* "<module><suffix>" in base, or SIZE_MAX when there is none, or more than one. */
size_t peft_find(const struct ckpt_source *base, const char *module, const char *suffix);
/* The input embedding of a language model, by its usual names, or SIZE_MAX. */
size_t peft_find_embedding(const struct ckpt_source *base);
/* model_type of a source's config.json, or NULL. */
const char *peft_model_type(const struct ckpt_source *src);
/* Whether the family's blocks use Conv1D, which stores its weight as [in, out]. */
bool peft_has_conv1d(const struct ckpt_source *base);
/* True when the last part of module is `part`. */
bool peft_module_ends(const char *module, const char *part);

#endif
