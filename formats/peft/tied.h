/*
 * peft/tied - a head tied to the embedding, before and after adapters are folded in, and the
 * resulting config.json.
 */
#ifndef CKPT_FORMATS_PEFT_TIED_H
#define CKPT_FORMATS_PEFT_TIED_H

#include "formats/peft/layers.h"
#include "formats/peft/updates.h"

/* Whether the base's head is tied: config.json says so, or says nothing and there is no head
 * tensor. */
bool peft_is_tied(const struct ckpt_source *base);
/* Whether two tensors of the same shape and dtype hold the same bytes. */
int peft_same_bytes(bool *same, struct ckpt_source *src, size_t i, size_t j,
                    struct ckpt_err *err);
/* After the updates of one adapter: if the tie does not hold any more, give the head its own
 * tensor. */
int peft_untie(struct peft_updates *m);
/* Facts in a model's config.json that changed. */
struct peft_changes {
    bool               untied;          /* the head is a tensor of its own */
    int64_t            vocab;           /* rows of the embedding, or 0: unchanged */
    struct peft_layers layers;          /* n 0: unchanged */
};

/* Update config.json of the merged model, and the facts about it. */
int peft_tell_config(struct ckpt_source **src, const struct peft_changes *c,
                     struct ckpt_err *err);

#endif
