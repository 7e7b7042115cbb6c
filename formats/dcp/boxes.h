/*
 * boxes - build a tensor from boxes that are spread over several files.
 */
#ifndef CKPT_FORMATS_DCP_BOXES_H
#define CKPT_FORMATS_DCP_BOXES_H

#include "libckpt/tensor.h"

/*
 * Append a tensor of n boxes to list.  frag is in list's arena, and is sorted by the boxes'
 * starts, so that reading finds them by bisection.  replicas: an identical box that occurs again
 * is ignored.  The boxes must tile the tensor; errors name it.
 */
int boxes_add(struct ckpt_tensors *list, struct ckpt_tensor **added, const char *name,
              enum ckpt_dtype dtype, const struct ckpt_shape *shape, struct ckpt_fragment *frag,
              size_t n, bool replicas, struct ckpt_err *err);

/*
 * Cut elements [start, start + count) of a tensor, in row-major order, into the fewest boxes that
 * lie in that order one after another; the elements of each then are a run themselves.  Returns
 * their number, at most BOXES_OF_RUN; count 0 gives none.
 */
#define BOXES_OF_RUN (2 * CKPT_MAX_RANK)
size_t boxes_of_run(struct ckpt_box box[BOXES_OF_RUN], const struct ckpt_shape *shape,
                    int64_t start, int64_t count);

#endif
