/*
 * init - initial weights of a fresh run, distributed as by the reference's _init_weights:
 * matrices and embeddings normal(0, initializer_range), norm gains 1, biases 0, the padding id's
 * row 0; GPT-2's last matrices of a sublayer smaller by sqrt(2 L).
 *
 * An element depends on the seed, the parameter's name and its place only, so every rank fills
 * just what it owns and any number of ranks makes the same model.  (torch's stream of normals is
 * not reproduced: it depends on the order of modules and the kind of device.)
 */
#ifndef CKPT_TRAINER_MODEL_INIT_H
#define CKPT_TRAINER_MODEL_INIT_H

#include "trainer/model/params.h"

struct arch;

struct init {
    const struct arch   *arch;
    const struct params *params;
    uint64_t             seed;
    int                  threads;       /* that draw; 0: one */
};

/* Elements [start, start + count) of parameter i; ctx is a struct init. */
int init_fill(void *ctx, size_t i, int64_t start, int64_t count, float *dst,
              struct ckpt_err *err);

#endif
