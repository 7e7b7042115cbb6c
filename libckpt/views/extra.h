/*
 * views/extra - a source with one side file, or its facts, replaced.
 */
#ifndef CKPT_LIBCKPT_VIEWS_EXTRA_H
#define CKPT_LIBCKPT_VIEWS_EXTRA_H

#include "libckpt/source.h"

/*
 * Side file `name` has these bytes (copied); it is added when src has none of that name, and
 * removed with bytes NULL.  info: the new facts, or NULL for those of src.  Takes src and info, on
 * failure too.
 */
int ckpt_view_extra(struct ckpt_source **out, struct ckpt_source *src, const char *name,
                    const void *bytes, size_t n, json_t *info, struct ckpt_err *err);

#endif
