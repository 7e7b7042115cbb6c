/*
 * quant/read - values of packed tensors, in any range, through buffers of a fixed size.
 */
#ifndef CKPT_FORMATS_QUANT_READ_H
#define CKPT_FORMATS_QUANT_READ_H

#include "formats/quant/parts.h"

/* Elements [start, start + count) of p, in p->dtype, row-major.  Any thread.  p is not PLAIN. */
int quant_read(struct ckpt_source *src, const struct quant_part *p, int64_t start, int64_t count,
               void *dst, struct ckpt_err *err);
/* n floats of a tensor of scales, from element start on. */
int quant_read_scales(float *dst, struct ckpt_source *src, size_t i, int64_t start, int64_t n,
                      struct ckpt_err *err);
/* The same of a transposed matrix (GPTQ, AWQ): quant_read calls it. */
int quant_read_words(struct ckpt_source *src, const struct quant_part *p, int64_t start,
                     int64_t count, void *dst, struct ckpt_err *err);

#endif
