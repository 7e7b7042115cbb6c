/*
 * peft/head - the head of a base that is tied to the embedding, while an adapter's tensors are
 * taken: whether the adapter trained both as one.
 */
#ifndef CKPT_FORMATS_PEFT_HEAD_H
#define CKPT_FORMATS_PEFT_HEAD_H

#include "formats/peft/updates.h"

/* Whether tensor i of the adapter belongs to the head.  Embeddings are taken before heads, so that
 * equal copies are recognised. */
bool peft_is_head(const struct peft_updates *m, size_t i);
/* Whether <module><suffix> is the head of a base that has no tensor for it. */
bool peft_is_tied_head(const struct peft_updates *m, const char *module, const char *suffix);
/* An update that makes a tensor for the head: it starts as a copy of the embedding. */
struct ckpt_lora_update *peft_new_head(struct peft_updates *m, const char *module);
/*
 * Skip the head's factors where both were trained as one, as they repeat the embedding's; else
 * config.keeps_ties becomes false.
 */
void peft_skip_head(struct peft_updates *m);
/* Take tensor i, the head's copy of a tied embedding, if it equals the embedding's. */
int peft_take_head_copy(bool *took, struct peft_updates *m, size_t i, const char *module,
                        const char *suffix);
/* Take tensor i, rows of a tied head, if the embedding has the same rows n and values. */
int peft_take_head_rows(bool *took, struct peft_updates *m, size_t i, const int64_t *row,
                        size_t n);
/*
 * After all adapters: once the head has its own tensor, updates of the embedding that concern both
 * apply to it too: rows of tokens, and those of adapters that were trained tied.
 */
int peft_follow(struct peft_updates *m);
/* CKPT_EMISMATCH if embedding and head have different numbers of rows by the current adapter. */
int peft_check_rows(const struct peft_updates *m);

#endif
