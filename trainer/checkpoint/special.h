/*
 * checkpoint/special - special tokens that settings name in place of the tokenizer's: the run uses
 * them, and what it saves names them.
 *
 * Source: trl 1.16 trainer/sft_trainer.py (eos_token, pad_token); transformers 5.24
 * trainer_utils.py, _align_special_token.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_SPECIAL_H
#define CKPT_TRAINER_CHECKPOINT_SPECIAL_H

#include "libckpt/base/buf.h"
#include "trainer/run/session.h"
#include "trainer/run/settings.h"

/* NULL: as files say. */
struct special {
    const char *eos, *pad;
    int32_t     eos_id, pad_id;
};

/*
 * Make tokenizer and description of an open session those of the tokens.  CKPT_ECONFIG names one
 * that the vocabulary lacks, or that cannot be changed.  The token that pads may be absent where
 * nothing is padded: a warning says that it is left out.  Not collective, the same on every rank.
 */
int special_use(struct session *s, const struct settings *set, struct ckpt_err *err);
/* Those that special_use took. */
struct special special_of(const struct session *s, const struct settings *set);
/*
 * A tokenizer's file, or generation_config.json, with these tokens: n bytes of text, of which all
 * others stay.  Nothing is put into out when it names them already, is no JSON object, or is a file
 * that names none.
 */
int special_say(struct ckpt_buf *out, const char *name, const char *text, size_t n,
                const struct special *special, struct ckpt_err *err);

#endif
