/*
 * merge/card - README.md for a model that is made of a run's checkpoint, from trainer_state.json,
 * training_args.bin and the base's card.
 */
#ifndef CKPT_TOOLS_MERGE_CARD_H
#define CKPT_TOOLS_MERGE_CARD_H

#include "libckpt/source.h"
#include "tools/merge/merge.h"

/*
 * Add a card to *src, which is to be written in that format, where the job's input, or its only
 * adapter, is a checkpoint of a run without one of its own.  A base's card that came along becomes
 * BASE_README.md.  Takes *src, which is NULL after a failure.
 */
int merge_card(struct ckpt_source **src, const struct merge_want *w, const struct merge_job *job,
               const char *format, bool follow, struct ckpt_err *err);

#endif
