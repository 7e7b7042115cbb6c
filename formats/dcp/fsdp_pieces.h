/*
 * fsdp_pieces - the boxes of tensors in one rank's torch file.
 *
 *   DTensors, ShardedTensors   as torch_shard reads them
 *   plain tensors              the same on every rank; but in FSDP1's LOCAL state dicts
 *                              (those with a flat_param) one-dimensional ones are the rank's run
 *                              of the flattened parameter
 *
 * Source: torch 2.15 distributed/fsdp/_state_dict_utils.py.
 */
#ifndef CKPT_FORMATS_DCP_FSDP_PIECES_H
#define CKPT_FORMATS_DCP_FSDP_PIECES_H

#include "formats/torch/torch.h"

struct fsdp_piece {
    const char *const   *part;          /* path in the file */
    size_t               n_part;
    bool                 marker;        /* not a tensor: the position of param_groups */
    bool                 plain;         /* not wrapped in a distributed tensor's record */
    enum ckpt_dtype      dtype;
    struct ckpt_shape    shape;         /* of the complete tensor */
    struct ckpt_fragment frag;          /* file NULL: this rank has no elements of it */
};

struct fsdp_rank {
    struct fsdp_piece *item;            /* the pieces, in the caller's arena */
    size_t             n, cap;
    int64_t            world, rank;     /* from the records, or -1 */
    bool               local;           /* a flat_param was among them */
};

/*
 * Walk the tree of an archive whose bytes are those of file from 0.  Paths, boxes and strides are
 * copied to arena, so the archive may be closed.  CKPT_EUNSUPPORTED for partial sums, layouts
 * that are not a box, and other records of tensors; CKPT_EFORMAT when a local tensor's shape
 * differs from its layout's.
 */
int fsdp_pieces_read(struct fsdp_rank *out, const struct torch_archive *a,
                     struct ckpt_file *file, struct ckpt_arena *arena, struct ckpt_err *err);
void fsdp_pieces_release(struct fsdp_rank *r);

#endif
