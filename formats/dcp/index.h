/*
 * dcp/index - the items of a distributed checkpoint being written, and its .metadata.
 *
 * An item has a path in the state dict; its flat name is the path joined by dots.  dcp/meta.h
 * reads it back.
 */
#ifndef CKPT_FORMATS_DCP_INDEX_H
#define CKPT_FORMATS_DCP_INDEX_H

#include "formats/container/value.h"
#include "formats/dcp/blob.h"
#include "libckpt/base/map.h"

struct dcp_out_item {
    const char              *fqn;
    const struct value      *path;          /* a tuple of texts and numbers */
    const struct value      *value;         /* NULL: a tensor */
    enum ckpt_dtype          dtype;         /* of a tensor */
    const struct ckpt_shape *shape;
    size_t                   file;          /* number of its data file */
    struct dcp_blob          blob;
};

struct dcp_index {
    struct ckpt_arena    arena;
    struct dcp_out_item *item;
    size_t               n, cap;
    struct ckpt_map     *by_name;
};

/*
 * Append an item at path, a tuple in the arena.  CKPT_EMISMATCH when another path joins to the
 * same name.  Gives *out, if not NULL: valid until the next is added.
 */
int dcp_index_add(struct dcp_index *x, struct dcp_out_item **out, struct value *path,
                  struct ckpt_err *err);
/* The pickle of .metadata: every item is one box, file k is named __0_k.distcp. */
int dcp_index_pickle(struct ckpt_buf *out, struct dcp_index *x, struct ckpt_err *err);
void dcp_index_release(struct dcp_index *x);

#endif
