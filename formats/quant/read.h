/*
 * quant/read - dequantise any range of packed tensors, through buffers of a fixed size.
 */
#ifndef CKPT_FORMATS_QUANT_READ_H
#define CKPT_FORMATS_QUANT_READ_H

#include "formats/quant/parts.h"

/* Elements [start, start + count) of a packed quant_part: a quant_seen_fn. */
int quant_read(struct ckpt_source *src, const void *part, int64_t start, int64_t count,
               void *dst, struct ckpt_err *err);
/* The same for a transposed matrix (GPTQ, AWQ): called by quant_read. */
int quant_read_words(struct ckpt_source *src, const struct quant_part *p, int64_t start,
                     int64_t count, void *dst, struct ckpt_err *err);
/* The group of each column, or NULL where p has no order; freed by the caller. */
int quant_read_order(int32_t **out, struct ckpt_source *src, const struct quant_part *p,
                     int64_t groups, struct ckpt_err *err);

#endif
