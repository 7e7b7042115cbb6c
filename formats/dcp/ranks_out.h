/*
 * dcp/ranks_out - one rank's part of a distributed checkpoint that several ranks write together.
 *
 *   __R_0.distcp   the boxes that rank R owns; rank 0's also has all values and what is not sharded
 *   .metadata      where all lie: one rank writes it
 *
 * A rank owns a run of each tensor's elements, which is cut into boxes (boxes.h).  Every rank lists
 * the same items in the same order and knows who owns what; lengths follow from shapes, so that
 * nobody has to ask another where its boxes lie.
 */
#ifndef CKPT_FORMATS_DCP_RANKS_OUT_H
#define CKPT_FORMATS_DCP_RANKS_OUT_H

#include "formats/dcp/index.h"

struct dcp_ranks;

/* A run of a tensor's elements. */
struct dcp_run {
    int64_t start, count;
};

/* index: this rank writes .metadata. */
int dcp_ranks_new(struct dcp_ranks **out, int rank, int world_size, bool index,
                  struct ckpt_err *err);
/* Paths and values are made in its arena. */
struct dcp_index *dcp_ranks_index(struct dcp_ranks *r);
int dcp_ranks_value(struct dcp_ranks *r, struct value *path, struct value *v,
                    struct ckpt_err *err);
/* run[world_size]: what each rank owns; NULL: rank 0 everything.  *number: of the tensor, for put;
 * shape is borrowed. */
int dcp_ranks_tensor(struct dcp_ranks *r, size_t *number, struct value *path,
                     enum ckpt_dtype dtype, const struct ckpt_shape *shape,
                     const struct dcp_run *run, struct ckpt_err *err);
/* Another name of the tensor that was listed last: its bytes are stored once. */
int dcp_ranks_alias(struct dcp_ranks *r, struct value *path, struct ckpt_err *err);

/* Create this rank's file in a folder of dir, where it has items.  The list is complete. */
int dcp_ranks_begin(struct dcp_ranks *r, struct ckpt_outdir *dir, const char *folder,
                    struct ckpt_err *err);
/* Elements [start, start + count) of a tensor: of this rank's run. */
int dcp_ranks_put(struct dcp_ranks *r, size_t number, int64_t start, int64_t count,
                  const void *src, struct ckpt_err *err);
/* Complete the file, all elements of which must have been put, and write .metadata. */
int dcp_ranks_commit(struct dcp_ranks *r, struct ckpt_err *err);
/* Abort what was not committed, and release; NULL accepted. */
void dcp_ranks_close(struct dcp_ranks *r);

#endif
