/*
 * checkpoint/changed - what a resumed run does otherwise than the run that saved its checkpoint: by
 * training_args.bin and trainer_state.json, ours or HF Trainer's, and by the settings that our
 * MANIFEST.json keeps.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_CHANGED_H
#define CKPT_TRAINER_CHECKPOINT_CHANGED_H

#include <jansson.h>

#include "trainer/checkpoint/checkpoint.h"

/* The manifest's "settings", a new reference: settings_saved.h, and those of the model, its
 * tokenizer and the chat template that decide updates too. */
int changed_keep(json_t **out, const struct session *s, const struct checkpoint *c,
                 struct ckpt_err *err);
/*
 * A warning for each setting that changes updates from here on.  c is that of the resumed run;
 * files and members that are not there, or cannot be read, say nothing.
 */
void changed_tell(const char *path, const struct session *s, const struct checkpoint *c);
/* The same of settings that decide samples, as the end of a sentence: ": `text_field` a -> b", or
 * "". */
void changed_samples(char *dst, size_t size, const json_t *manifest, const struct session *s,
                     const struct checkpoint *c);

#endif
