/*
 * views/views - what views share: a handle on the source beneath, its list copied and changed.
 */
#ifndef CKPT_LIBCKPT_VIEWS_VIEWS_H
#define CKPT_LIBCKPT_VIEWS_VIEWS_H

#include "libckpt/view.h"

/* A view whose tensor i is tensor map[i] of the source beneath it. */
struct view {
    struct ckpt_source *below;
    size_t             *map;
};

/*
 * Finish a view over a filled list: extras and info are those of below.  Takes v (with its map
 * and source) and list, on failure too.
 */
int view_finish(struct ckpt_source **out, const struct ckpt_source_ops *ops, struct view *v,
                struct ckpt_tensors *list, struct ckpt_err *err);
/* A view of n tensors with room for its map; takes src, on failure too. */
int view_new(struct view **out, struct ckpt_source *src, size_t n, struct ckpt_err *err);
/* Append tensor i of below to list under name; v->map is filled.  alias_of is set later. */
int view_add(struct view *v, struct ckpt_tensors *list, size_t i, const char *name,
             enum ckpt_dtype dtype, struct ckpt_err *err);
/*
 * Set alias_of of every entry to the view's own indices.  Ties survive as long as two tensors
 * of a group are left, and have one dtype.
 */
int view_tie(const struct view *v, struct ckpt_tensors *list, struct ckpt_err *err);
/* Reading that only maps the index. */
extern const struct ckpt_source_ops view_plain_ops;
void view_close(void *self);

#endif
