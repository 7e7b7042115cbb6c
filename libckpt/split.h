/*
 * split - how a list of tensors is cut into files by size.
 */
#ifndef CKPT_LIBCKPT_SPLIT_H
#define CKPT_LIBCKPT_SPLIT_H

#include "libckpt/api.h"
#include "libckpt/tensor.h"

CKPT_BEGIN_C

#define CKPT_DEFAULT_SHARD_BYTES ((uint64_t)5000000000u)   /* huggingface_hub's "5GB" */

/*
 * shard_of[i] for each tensor: tensors fill a shard in order, and the next begins when one would
 * pass max_bytes.  A tensor larger than max_bytes gets a shard of its own at once, and the shard
 * being filled goes on after it (so numbers need not rise along the list).  Tied tensors count in
 * full.  Returns the number of shards (>= 1).  Source: huggingface_hub 2.4
 * serialization/_base.py, split_state_dict_into_shards_factory.
 */
size_t ckpt_split(size_t *shard_of, const struct ckpt_tensors *list, uint64_t max_bytes);

CKPT_END_C

#endif
