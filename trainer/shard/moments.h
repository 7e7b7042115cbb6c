/*
 * moments - in which type each parameter's moments are kept (OP_MOMENTS_* of ops.h).
 *
 * Of 8-bit ones bitsandbytes' optimizers leave some in f32: those of fewer than 4096 elements
 * (min_8bit_size), and, as HF Trainer tells them to, those of every nn.Embedding, whose rows get
 * gradients of very different sizes.  Files have the matrices of all experts of a block as one
 * tensor; where one expert is no whole number of blocks they are f32 too.
 * Source: bitsandbytes 0.50.2, optim/optimizer.py; transformers 5.17, trainer_optimizer.py.
 */
#ifndef CKPT_TRAINER_SHARD_MOMENTS_H
#define CKPT_TRAINER_SHARD_MOMENTS_H

#include "trainer/model/params.h"
#include "trainer/ops/ops.h"

/* Of parameter i, where `wanted` is asked for. */
enum op_moments moments_of(const struct params *params, size_t i, enum op_moments wanted);
/* Bytes of one moment. */
size_t moments_size(enum op_moments moments);

#endif
