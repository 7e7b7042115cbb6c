/*
 * value_copy - copy a value with every tensor replaced, to write part of one archive into another.
 */
#ifndef CKPT_FORMATS_CONTAINER_VALUE_COPY_H
#define CKPT_FORMATS_CONTAINER_VALUE_COPY_H

#include "formats/container/value.h"

/* The tensor's replacement in the copy; NULL with err filled. */
typedef struct value *value_tensor_fn(void *ctx, const struct value_tensor *t,
                                      struct ckpt_err *err);

/*
 * Copy v into the arena.  Texts and numbers are shared with v, which must outlive the copy;
 * values shared in v are shared in the copy, cycles included.  CKPT_ELIMIT when nested deeper
 * than 512.
 */
int value_copy(struct value **out, struct ckpt_arena *a, const struct value *v,
               value_tensor_fn *fn, void *ctx, struct ckpt_err *err);

#endif
