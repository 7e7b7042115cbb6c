/*
 * views - code that views share: a handle on the source beneath, and a changed copy of its list.
 *
 * Abbreviations: view (views), ckpt (libckpt).
 */
#ifndef CKPT_LIBCKPT_VIEWS_VIEWS_H
#define CKPT_LIBCKPT_VIEWS_VIEWS_H

#include "libckpt/view.h"

/* A view whose tensor i is tensor map[i] of the source beneath it. */
struct view {
    struct ckpt_source *below;
    size_t             *map;
};

/* Allocate a view of n tensors with a zeroed map, as the head of a zeroed struct of size bytes.
 * Takes src, on failure too. */
int view_new(struct view **out, size_t size, struct ckpt_source *src, size_t n,
             struct ckpt_err *err);
/*
 * Finish a view over a filled list: extras and info are those of below.  rc: the code of an
 * earlier failure, or 0; if not 0, everything is released and rc returned.  Takes v and list, on
 * failure too.
 */
int view_finish(struct ckpt_source **out, const struct ckpt_source_ops *ops, struct view *v,
                struct ckpt_tensors *list, int rc, struct ckpt_err *err);
/* Append tensor i of below to list under name; v->map is filled.  alias_of is set later. */
int view_add(struct view *v, struct ckpt_tensors *list, size_t i, const char *name,
             enum ckpt_dtype dtype, struct ckpt_err *err);
/*
 * Set alias_of of every entry to the view's own indices.  A tie survives while at least two
 * tensors of its group are left with one dtype.
 */
int view_tie(const struct view *v, struct ckpt_tensors *list, struct ckpt_err *err);
/* For views that read by mapping the index and nothing else. */
extern const struct ckpt_source_ops view_plain_ops;
void view_close(void *self);

#endif
