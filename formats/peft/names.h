/*
 * peft/names - which tensor of a base an adapter's name means.
 *
 * The module path of an adapter is that of the model it was trained on; the base's file may have
 * it under other leading parts.  Source: peft 0.21 utils/save_and_load.py, transformers 5.17
 * (renamed wrappers of multi-modal models).
 */
#ifndef CKPT_FORMATS_PEFT_NAMES_H
#define CKPT_FORMATS_PEFT_NAMES_H

#include <stdbool.h>

#include "formats/families/family.h"
#include "libckpt/source.h"

/*
 * The module that an adapter's tensor <module><tail> belongs to, as the base names it: without
 * "base_model.model." and the wrappers' "base_layer".
 */
void peft_module_of(char module[CKPT_MAX_NAME + 1], const char *name, const char *tail);
/* "<module><suffix>" in base, or SIZE_MAX when there is none, or no single one. */
size_t peft_find(const struct ckpt_source *base, const char *module, const char *suffix);
/* The input embedding of a language model, by its usual names, or SIZE_MAX. */
size_t peft_find_embedding(const struct ckpt_source *base);
/* model_type of a source's config.json, or NULL. */
const char *peft_model_type(const struct ckpt_source *src);
/* Families whose blocks are made of Conv1D, which keeps its weight as [in, out]. */
bool peft_has_conv1d(const struct ckpt_source *base);
/* True when the last part of module is `part`. */
bool peft_module_ends(const char *module, const char *part);

#endif
