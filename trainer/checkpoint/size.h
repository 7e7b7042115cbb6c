/*
 * checkpoint/size - bytes of the files that a run will write, before it begins.
 *
 * Tensors are counted as they are written; small files, and what a format adds to a tensor, by what
 * they take in files of this trainer: together some 30 KiB and 20 KiB for each rank.
 */
#ifndef CKPT_TRAINER_CHECKPOINT_SIZE_H
#define CKPT_TRAINER_CHECKPOINT_SIZE_H

#include "trainer/run/session.h"
#include "trainer/run/settings.h"

struct checkpoint_size {
    uint64_t model;                     /* model.safetensors, or the adapter's; 0: not written */
    uint64_t states;                    /* model states of stages 1 to 3, of all ranks */
    uint64_t optimizer;                 /* true weights with them, of all ranks */
    uint64_t others;                    /* tokenizer, configuration, state of the run */
    uint64_t all;
    uint64_t final_model;               /* the trained model in the output's root; 0: none */
    uint64_t state_dict;                /* the file beside each checkpoint; 0: none */
};

/*
 * The type of model.safetensors: f32, but where DeepSpeed's option asks for the 16 bits that the
 * model computes with (engine.py, _zero3_consolidated_16bit_state_dict).
 */
enum ckpt_dtype checkpoint_model_dtype(const struct session *s, const struct settings *set);
/* The session is planned, dry or not. */
int checkpoint_size(struct checkpoint_size *out, const struct session *s,
                    const struct settings *set, struct ckpt_err *err);

#endif
