/*
 * cross - the part of a decoder's block that attends to the encoder's output: norm, queries from
 * the decoder's rows, keys and values from the encoder's, attention, output projection, residual.
 */
#ifndef CKPT_TRAINER_MODEL_CROSS_H
#define CKPT_TRAINER_MODEL_CROSS_H

#include <stdint.h>

struct block_bufs;
struct layer;
struct pass;

/* yx ... h1, and back. */
void cross_fwd(const struct pass *p, const struct layer *l, const struct block_bufs *b);
void cross_bwd(const struct pass *p, const struct layer *l, const struct block_bufs *b, void *dh);
/* Keys and values of n of the encoder's rows, to kv. */
void cross_keys(const struct pass *p, const struct layer *l, void *kv, int64_t n);

#endif
