/*
 * split - how a list of tensors is cut into files by size.
 */
#ifndef CKPT_SPLIT_H
#define CKPT_SPLIT_H

#include "libckpt/tensor.h"

#define CKPT_DEFAULT_SHARD_BYTES ((uint64_t)5000000000u)   /* huggingface_hub's "5GB" */

/*
 * shard_of[i] for each tensor, in order: a new shard begins when the next tensor would pass
 * max_bytes; a larger tensor gets a shard of its own.  Returns the number of shards (>= 1).
 * Source: huggingface_hub 0.2x serialization/_base.py, split_state_dict_into_shards_factory.
 */
size_t ckpt_split(size_t *shard_of, const struct ckpt_tensors *list, uint64_t max_bytes);

#endif
