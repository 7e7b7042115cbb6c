/*
 * checkpoint/files - the small files of a checkpoint: tokenizer files, cards and licences
 * copied, training_args.bin as HF Trainer writes it.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_FILES_H
#define CKPT_TRAINER_CHECKPOINT_FILES_H

#include "formats/hf/side_files.h"
#include "trainer/checkpoint/special.h"

/*
 * Copy every tokenizer file that is in from; CKPT_ELIMIT for one above 256 MiB.  chat_template (or
 * NULL), as chat_open takes it, becomes the model's; so do special tokens.
 */
int checkpoint_copy_tokenizer(struct ckpt_outdir *dir, struct ckpt_dir *from,
                              const char *chat_template, const struct special *special,
                              struct ckpt_err *err);
/* Bytes of those files. */
int checkpoint_tokenizer_bytes(uint64_t *bytes, struct ckpt_dir *from, struct ckpt_err *err);
/*
 * Copy the other side files of a model: cards, licences, code; of an adapter's base only
 * licences.  tokenizer: where the tokenizer's files were copied from, or NULL; the model's
 * generation_config.json counts where that folder has none.  card: README.md is wanted.
 */
int checkpoint_copy_side_files(struct ckpt_outdir *dir, const struct side_files *side,
                               struct ckpt_dir *tokenizer, const struct special *special,
                               bool adapter, bool card, struct ckpt_err *err);
/*
 * training_args.bin: transformers' TrainingArguments with the fields this trainer has a setting
 * for.  Source: transformers 5.17 training_args.py.
 */
int checkpoint_save_training_args(const struct settings *s, struct ckpt_outdir *dir,
                                  struct ckpt_err *err);

#endif
