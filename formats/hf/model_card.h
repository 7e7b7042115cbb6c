/*
 * model_card - README.md of a model: what its front matter says, and more said in it.
 *
 *   ---
 *   base_model: owner/name
 *   model-index:
 *   - name: NAME
 *     results:
 *     - task: {type: text-generation}
 *       dataset: {name: NAME, type: owner/name, config: main, split: test}
 *       metrics:
 *       - {type: perplexity, value: 12.5, name: Perplexity}
 *   ---
 *   # Text for people
 *
 * Keys that are there keep their values, and all else its bytes: only new keys are added, and
 * results put into model-index, which is written anew for that.
 * Source: huggingface_hub 1.x repocard.py (REGEX_YAML_BLOCK, model_index_to_eval_results).
 */
#ifndef CKPT_FORMATS_HF_MODEL_CARD_H
#define CKPT_FORMATS_HF_MODEL_CARD_H

#include <jansson.h>

#include "libckpt/base/buf.h"

#define MODEL_CARD_MAX ((size_t)16 << 20)       /* bytes of a card */

/* One figure.  Of the same task, data set, config and split it replaces that of its metric. */
struct model_card_result {
    const char *task;                           /* "text-generation" */
    const char *dataset, *config, *split;       /* config and split may be NULL */
    const char *metric, *name;                  /* kind, and in words; name may be NULL */
    double      value;                          /* finite */
};

/* The keys at the top of the front matter that are strings or lists of strings; an empty object
 * where there is none.  A new reference.  CKPT_EFORMAT with the line when it is no YAML. */
int model_card_read(json_t **keys, const char *text, size_t n, struct ckpt_err *err);
/*
 * Write a card with more in it.  text: the card as it is, n bytes, or "".  keys: strings and lists
 * of strings, in the order to be written; those that are there already are left alone.  name: of
 * the model, where model-index has none yet.
 */
int model_card_edit(struct ckpt_buf *out, const char *text, size_t n, const json_t *keys,
                    const char *name, const struct model_card_result *result, size_t n_results,
                    struct ckpt_err *err);

#endif
