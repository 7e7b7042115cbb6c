/*
 * views/extra - a source with one side file, or its facts, replaced.
 */
#ifndef CKPT_LIBCKPT_VIEWS_EXTRA_H
#define CKPT_LIBCKPT_VIEWS_EXTRA_H

#include "libckpt/source.h"

/*
 * Replace the side file `name` by bytes (copied): it is added if src has no such file, and
 * removed if bytes is NULL.  info: the new facts, or NULL to keep those of src.  Takes src and
 * info, on failure too.
 */
int ckpt_view_extra(struct ckpt_source **out, struct ckpt_source *src, const char *name,
                    const void *bytes, size_t n, json_t *info, struct ckpt_err *err);

#endif
