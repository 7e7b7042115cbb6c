/*
 * run_files - the small files a checkpoint carries along: tokenizer files as they were found,
 * training_args.bin as HF Trainer writes it.
 */
#ifndef CKPT_RUN_FILES_H
#define CKPT_RUN_FILES_H

#include "libckpt/commit.h"
#include "trainer/settings.h"

/*
 * Copy every tokenizer file that is in from; CKPT_ELIMIT for one above 256 MiB.  chat_template (or
 * NULL), as chat_open takes it, becomes the model's.
 */
int copy_tokenizer(struct ckpt_outdir *dir, struct ckpt_dir *from, const char *chat_template,
                   struct ckpt_err *err);
/*
 * training_args.bin: transformers' TrainingArguments with the fields this trainer has a setting
 * for.  Source: transformers 5.17 training_args.py.
 */
int save_training_args(const struct settings *s, struct ckpt_outdir *dir, struct ckpt_err *err);

#endif
