/*
 * dcp - checkpoints of torch.distributed.checkpoint (FSDP, torchtitan, Megatron's torch_dist),
 * shards joined to tensors.
 *
 *   .metadata              items and their places, see dcp/meta.h; written last, so
 *                          that a directory without it was never finished
 *   __R.metadata           instead, one per rank, when ranks saved without collectives
 *   __R_K.distcp           the bytes, see dcp/files.h; files the metadata does not name are
 *                          leftovers of another save, and are ignored
 *
 *   shard-0000R-model-0000K-of-0000N.safetensors   torch's HuggingFaceStorageWriter: shards that
 *                          give in their headers where each box begins, and no .metadata
 *
 *   pytorch_model_fsdp_0/, optimizer_0/            Trainer's and accelerate's checkpoint folder:
 *                          both inside are such directories, read as one
 *
 * The boxes of a tensor must tile it: a missing rank shows as a hole, a stale one as an overlap.
 * Names: dcp/names.h.  Optimizer state, and tensors beside the model, are listed on request.
 * Source: torch 2.15 distributed/checkpoint/; accelerate utils/fsdp_utils.py.
 */
#ifndef CKPT_FORMATS_DCP_DCP_H
#define CKPT_FORMATS_DCP_DCP_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_dcp;

#endif
