/*
 * settings_saved - the settings that decide updates, as a checkpoint keeps them: a JSON object with
 * a member for each, by its option's name.
 *
 * Left out are the settings for which training_args.bin has a field, those of an adapter, which has
 * a file of its own, paths, and all that changes no update.  optim_args and lr_scheduler_kwargs are
 * objects of all their keys, so that two ways to say the same, and a default that is given, are no
 * difference.
 */
#ifndef CKPT_TRAINER_RUN_SETTINGS_SAVED_H
#define CKPT_TRAINER_RUN_SETTINGS_SAVED_H

#include <jansson.h>

#include "trainer/optim/schedule.h"
#include "trainer/run/settings.h"

/* *out is a new reference.  CKPT_ECONFIG where settings_check has it too. */
int settings_saved_make(json_t **out, const struct settings *s, struct ckpt_err *err);
/* lr_scheduler_kwargs of a schedule alone; NULL: memory does not suffice. */
json_t *settings_saved_keys(const struct schedule *s);
/* Whether a setting decides what a sample is: its tokens, and which of them are learned. */
bool settings_saved_of_samples(const char *name);

#endif
