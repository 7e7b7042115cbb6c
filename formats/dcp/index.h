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
    const struct ckpt_shape *shape;         /* of the box that is stored */
    const struct ckpt_shape *full;          /* of the tensor; NULL: the box is all of it */
    const int64_t           *start;         /* of the box; NULL: zeros */
    size_t                   box;           /* its number: a tensor's boxes follow each other */
    int                      rank;          /* who writes it */
    size_t                   file;          /* number of its data file among the rank's */
    size_t                   same;          /* 1 + the item whose bytes it shares; 0: its own */
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
/* Append a further box of the item that was added last. */
int dcp_index_add_box(struct dcp_index *x, struct dcp_out_item **out, struct ckpt_err *err);
/* A tuple of texts, ended by NULL, in the arena. */
struct value *dcp_index_path(struct dcp_index *x, const char *const *part);
/* optimizer.param_groups.NUMBER.KEY */
struct value *dcp_index_group_path(struct dcp_index *x, size_t number, const char *key);
/* The name of a data file. */
void dcp_index_file_name(char name[64], int rank, size_t file);
/* The pickle of an item's own archive. */
int dcp_index_blob_pickle(struct ckpt_buf *out, const struct dcp_out_item *it,
                          struct ckpt_err *err);
/* Place an item at the end of its file of *size bytes, which grows. */
int dcp_index_place(struct dcp_out_item *it, uint64_t *size, struct ckpt_buf *scratch,
                    struct ckpt_err *err);
/* The pickle of .metadata. */
int dcp_index_pickle(struct ckpt_buf *out, struct dcp_index *x, struct ckpt_err *err);
void dcp_index_release(struct dcp_index *x);

#endif
