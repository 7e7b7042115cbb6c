/*
 * torch/shard - one rank's pieces of a tensor that is sharded over ranks.
 *
 *   DTensor        _rebuild_from_type_v2(_rebuild_wrapper_subclass, DTensor, (DTensor, dtype,
 *                  its size, ...), (None, {_local_tensor, _spec})); _spec has the mesh
 *                  (its sizes, and this rank's place in it) and one placement for each of its
 *                  axes: Shard {dim} cuts as torch.chunk does, after the axes before it;
 *                  _StridedShard {dim, split_factor} what the axes after it have left, into
 *                  split_factor parts together; Replicate does not cut, Partial is a sum that
 *                  was never taken
 *   ShardedTensor  ..., (local shards, metadata, process group, ...)): each shard has its
 *                  offsets and sizes beside it
 *
 * Source: torch 2.15 distributed/tensor/_api.py, _dtensor_spec.py, placement_types.py,
 * _utils.py; distributed/device_mesh.py; distributed/_shard/sharded_tensor/api.py.
 */
#ifndef CKPT_FORMATS_TORCH_SHARD_H
#define CKPT_FORMATS_TORCH_SHARD_H

#include "formats/torch/torch.h"

struct torch_piece {
    int64_t                    start[CKPT_MAX_RANK];    /* in the complete tensor */
    const struct value_tensor *tensor;                  /* as long as the archive */
};

struct torch_shard {
    struct ckpt_shape   shape;          /* of the complete tensor */
    enum ckpt_dtype     dtype;
    struct torch_piece *piece;          /* [n] that no rank before has */
    size_t              n;
    int64_t             world, rank;    /* number of ranks, this one; -1: unknown */
};

/* True for the record of a DTensor or a ShardedTensor. */
bool torch_shard_is(const struct value *v);
/*
 * Read such a record.  Empty pieces are left out, and so are copies that a rank before has.
 * CKPT_EUNSUPPORTED for placements that are not read.
 */
int torch_shard_read(struct torch_shard *out, struct ckpt_arena *a, const struct value *v,
                     struct ckpt_err *err);

#endif
