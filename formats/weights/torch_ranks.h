/*
 * torch_ranks - a directory of torch files, one a rank, that hold their shards of one state dict:
 *
 *   model_world_size_8_rank_0.pt ... rank_7.pt         verl: DTensors
 *   optim_world_size_8_rank_0.pt ...                   their optimizers'
 *   anything that ends in rank0.pt, rank_0.pt, ...     FSDP's sharded state dicts, DTensors or
 *                                                      ShardedTensors
 *
 * No file says how many there are: the pieces of every tensor must tile it.  What is no sharded
 * tensor is taken from rank 0, and the other ranks must have it in the same shape.
 */
#ifndef CKPT_TORCH_RANKS_H
#define CKPT_TORCH_RANKS_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_torch_ranks;

#endif
