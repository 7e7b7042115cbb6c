/*
 * quant/seen - a view that dequantises packed tensors: quant and bnb provide the list of tensors
 * and the function that computes a range.
 */
#ifndef CKPT_FORMATS_QUANT_SEEN_H
#define CKPT_FORMATS_QUANT_SEEN_H

#include "libckpt/source.h"

#define QUANT_NONE SIZE_MAX

/* A tensor of the view: the first member of a struct that describes how it is packed. */
struct quant_seen {
    const char       *name;
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    size_t            codes;    /* tensor of the source beneath */
    bool              packed;   /* false: it is tensor `codes` itself, under name */
};

/* Elements [start, start + count) of a packed tensor, in its dtype.  Any thread. */
typedef int quant_seen_fn(struct ckpt_source *src, const void *part, int64_t start,
                          int64_t count, void *dst, struct ckpt_err *err);

/* n structs of size bytes, in the arena of the list that becomes the view's. */
struct quant_seen_list {
    struct ckpt_tensors tensors;
    void               *part;
    size_t              n, size;
    quant_seen_fn      *read;
};

/* Make the view.  rc: the code of an earlier failure, or 0; if not 0, everything is released and
 * rc returned.  Takes src and the list's tensors, on failure too. */
int quant_seen_view(struct ckpt_source **out, struct ckpt_source *src,
                    struct quant_seen_list *list, int rc, struct ckpt_err *err);

/* The tensor named by the first n bytes of base plus tail, or QUANT_NONE. */
size_t quant_beside(const struct ckpt_source *src, const char *base, size_t n, const char *tail);
/* The length of name without tail, or 0 when it does not end in that. */
size_t quant_stem(const char *name, const char *tail);
/* Number of blocks of `size` elements in n, the last one possibly smaller. */
static inline int64_t quant_blocks(int64_t n, int64_t size)
{
    return n / size + (n % size != 0);
}
/* n elements, from start on, of a tensor of scales of any floating dtype, as floats. */
int quant_read_scales(float *dst, struct ckpt_source *src, size_t i, int64_t start, int64_t n,
                      struct ckpt_err *err);

#endif
