/*
 * boxes - a tensor from the boxes that several files hold of it.
 */
#ifndef CKPT_FORMATS_DCP_BOXES_H
#define CKPT_FORMATS_DCP_BOXES_H

#include "libckpt/tensor.h"

/*
 * Append a tensor of n boxes to list: frag lies in list's arena, and is sorted by where boxes
 * begin, so that reading finds them by bisection.  replicas: a box that is there again, the very
 * same, is taken once.  The boxes must tile the tensor; the error names it.
 */
int boxes_add(struct ckpt_tensors *list, struct ckpt_tensor **added, const char *name,
              enum ckpt_dtype dtype, const struct ckpt_shape *shape, struct ckpt_fragment *frag,
              size_t n, bool replicas, struct ckpt_err *err);

#endif
