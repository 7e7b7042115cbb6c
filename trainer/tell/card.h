/*
 * card - the text of README.md for a trained model: YAML for the Hub, facts of the run for people.
 *
 * Source: huggingface_hub's card metadata; transformers 5.17 modelcard.py (TrainingSummary) for
 * sections and the table.
 */
#ifndef CKPT_TRAINER_TELL_CARD_H
#define CKPT_TRAINER_TELL_CARD_H

#include "trainer/checkpoint/checkpoint.h"

struct card_facts {
    const struct checkpoint *checkpoint;
    const char *base;           /* path or address of the model it was trained from; "": fresh */
    bool        adapter;
    bool        encoder;        /* the model has one beside its decoder */
    int         world_size;
};

/* *text is yours (ckpt_free).  Names no path of this machine: a base that is a folder, and data
 * that are files, are called by their last part. */
int card_make(char **text, const struct card_facts *facts, struct ckpt_err *err);

#endif
