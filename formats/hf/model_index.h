/*
 * model_index - the value of model-index in a card's front matter, with results put into it.
 */
#ifndef CKPT_FORMATS_HF_MODEL_INDEX_H
#define CKPT_FORMATS_HF_MODEL_INDEX_H

#include <yaml.h>

#include "formats/hf/model_card.h"

/*
 * Build in `to` a list like node of `from` (0: none), with the results; *out gets the list's node.
 * Only its first model is changed.  CKPT_EFORMAT when it is not as the Hub has it.
 */
int model_index_put(int *out, yaml_document_t *to, yaml_document_t *from, int node,
                    const char *name, const struct model_card_result *result, size_t n,
                    struct ckpt_err *err);

/* A string as a node: plain where every reader takes it for one. */
int model_index_text(yaml_document_t *to, const char *text);
/* Append key and value to a mapping; false: no memory. */
bool model_index_pair(yaml_document_t *to, int map, const char *key, int value);

#endif
