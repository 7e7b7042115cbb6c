/*
 * peft/tied - a head that is its base's embedding, before and after adapters are folded in, and
 * what config.json has to say then.
 */
#ifndef CKPT_FORMATS_PEFT_TIED_H
#define CKPT_FORMATS_PEFT_TIED_H

#include "formats/peft/layers.h"
#include "formats/peft/updates.h"

/* Whether the base's head is its embedding: said so, or not said and no tensor of its own. */
bool peft_is_tied(const struct ckpt_source *base);
/* Two tensors of the same shape and dtype hold the same bytes. */
int peft_same_bytes(bool *same, struct ckpt_source *src, size_t i, size_t j,
                    struct ckpt_err *err);
/* After the updates of one adapter: does the tie hold?  Else the head gets its own tensor. */
int peft_untie(struct peft_updates *m);
/* What of a model's config.json is no longer so. */
struct peft_changes {
    bool               untied;          /* the head is a tensor of its own */
    int64_t            vocab;           /* rows of the embedding, or 0 */
    struct peft_layers layers;          /* n 0: as they were */
};

/* config.json of the merged model, and the facts it holds. */
int peft_tell_config(struct ckpt_source **src, const struct peft_changes *c,
                     struct ckpt_err *err);

#endif
