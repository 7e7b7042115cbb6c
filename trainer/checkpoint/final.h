/*
 * checkpoint/final - the trained model in the run's folder itself, beside its checkpoints: weights
 * or adapter, configuration, tokenizer, arguments, card, the base's licences.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_FINAL_H
#define CKPT_TRAINER_CHECKPOINT_FINAL_H

#include "trainer/checkpoint/checkpoint.h"

/* The line in a card that says that it may be written anew; a user's card has it not. */
#define FINAL_CARD_MARK \
    "<!-- ckpt-train wrote this card. Without this line it is yours and stays. -->"

/*
 * Write the model, replacing files of those names.  card: the text of README.md, on rank 0; the
 * base's own becomes BASE_README.md.  A README.md that a user wrote stays.  Collective.
 */
int final_save(const char *output_dir, struct session *s, const struct checkpoint *c,
               const char *card, struct ckpt_err *err);

#endif
