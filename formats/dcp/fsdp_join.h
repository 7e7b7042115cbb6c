/*
 * fsdp_join - the pieces of a set's ranks, joined to tensors.
 */
#ifndef CKPT_FORMATS_DCP_FSDP_JOIN_H
#define CKPT_FORMATS_DCP_FSDP_JOIN_H

#include "formats/dcp/fsdp_pieces.h"
#include "libckpt/source.h"

struct fsdp_join;

int fsdp_join_new(struct fsdp_join **out, struct ckpt_err *err);
void fsdp_join_free(struct fsdp_join *j);
/* Add the pieces of the next rank; their paths and strides must outlive the join and the list. */
int fsdp_join_rank(struct fsdp_join *j, const struct fsdp_rank *rank, struct ckpt_err *err);
/* True for LOCAL state dicts of FSDP1: shapes are needed. */
bool fsdp_join_is_local(const struct fsdp_join *j);
/*
 * Append the tensors to list; without optimizer only weights, if there are any.  shapes: a source
 * with the shapes for a LOCAL set, or NULL.  CKPT_EFORMAT for boxes that do not tile, and for
 * plain tensors that differ between ranks; CKPT_EMISMATCH for runs that do not fit the shapes.
 */
int fsdp_join_list(struct fsdp_join *j, struct ckpt_tensors *list, bool optimizer,
                   const struct ckpt_source *shapes, struct ckpt_err *err);

#endif
