/*
 * trainer_saved - read what HF Trainer and accelerate leave beside the tensors: scheduler.pt
 * (scheduler.bin) and training_args.bin.
 *
 * Source: transformers 5.17 trainer.py, training_args.py; accelerate 1.15 checkpointing.py; torch
 * 2.15 optim/lr_scheduler.py.  Pickles are read as inert values; nothing is called.
 */
#ifndef CKPT_FORMATS_HF_TRAINER_SAVED_H
#define CKPT_FORMATS_HF_TRAINER_SAVED_H

#include "formats/container/value.h"
#include "libckpt/file.h"
#include "libckpt/mem.h"

/* State of one of torch's schedulers. */
struct scheduler_saved {
    double  base_lr;            /* of the first group; NaN: the file has none */
    bool    one_rate;           /* all groups have that */
    double *rate;               /* [n_rate] of all groups, in the arena */
    size_t  n_rate;
    int64_t last_epoch;         /* steps done; -1: the file does not say */
};

/* Takes file, on failure too.  CKPT_EFORMAT: a number that is none. */
int hf_scheduler_read(struct scheduler_saved *out, struct ckpt_arena *a, struct ckpt_file *file,
                      struct ckpt_err *err);

/* The arguments of a run, by name. */
struct hf_args;

/* Takes file, on failure too.  CKPT_EFORMAT: no object with fields. */
int hf_args_open(struct hf_args **out, struct ckpt_file *file, struct ckpt_err *err);
/* A number, or the text of a string or of an enum's member; false: there is none of that name. */
bool hf_args_number(const struct hf_args *args, const char *name, double *out);
const char *hf_args_text(const struct hf_args *args, const char *name);
/* A mapping, or the text of one, as JSON text to be freed with free(); of None "{}"; NULL: there is
 * none, or it cannot be told. */
char *hf_args_object(const struct hf_args *args, const char *name);
/* A flag; false: there is none of that name. */
bool hf_args_flag(const struct hf_args *args, const char *name, bool *out);
/* NULL accepted. */
void hf_args_close(struct hf_args *args);

#endif
