/*
 * fsdp - the files that ranks of FSDP left with torch.save, one each, joined to tensors.
 *
 *   NAME_rank_0.pt, NAME_rank_1.pt, ...   (NAME_rank0.pt too, .bin, .pth): any one of them names
 *                          the set, the others lie beside it
 *   directories of them    model_world_size_W_rank_R.pt with optim_world_size_W_rank_R.pt (verl),
 *                          pytorch_model_fsdp_rankR.bin (accelerate, LOCAL_STATE_DICT), or any one
 *                          set that is not called rng, extra ...
 *   pytorch_model_fsdp.bin with optimizer.bin (accelerate, FULL_STATE_DICT)
 *
 * DTensors and ShardedTensors are joined, see fsdp_pieces.h; a single file that contains all of
 * them is a set of one.  LOCAL state dicts of FSDP1 hold runs of flattened parameters without
 * shapes; the shapes are taken from opts->base, a model with the same names.  Without
 * use_orig_params even the names are absent.  Names: dcp/names.h.  Source: torch 2.15, accelerate
 * utils/fsdp_utils.py, verl's fsdp_checkpoint_manager.py.
 */
#ifndef CKPT_FORMATS_DCP_FSDP_H
#define CKPT_FORMATS_DCP_FSDP_H

#include "libckpt/format.h"

extern const struct ckpt_format ckpt_format_fsdp;

#endif
