/*
 * peft_tied - a head that is its base's embedding, before and after adapters are folded in, and
 * what config.json has to say then.
 */
#ifndef CKPT_PEFT_TIED_H
#define CKPT_PEFT_TIED_H

#include "formats/weights/peft_updates.h"

/* Whether the base's head is its embedding: said so, or not said and no tensor of its own. */
bool peft_is_tied(const struct ckpt_source *base);
/* Two tensors of the same shape and dtype hold the same bytes. */
int peft_same_bytes(bool *same, struct ckpt_source *src, size_t i, size_t j,
                    struct ckpt_err *err);
/* After the updates of one adapter: does the tie hold?  Else the head gets its own tensor. */
int peft_untie(struct peft_updates *m);
/* config.json of the merged model, and the facts it holds: tie and number of tokens. */
int peft_tell_config(struct ckpt_source **src, bool untied, int64_t vocab, struct ckpt_err *err);

#endif
