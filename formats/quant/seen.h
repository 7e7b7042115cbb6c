/*
 * quant/seen - a source whose packed tensors are seen as values, whatever packs them: quant and
 * bnb say what there is to be seen, and how a range of it is computed.
 */
#ifndef CKPT_FORMATS_QUANT_SEEN_H
#define CKPT_FORMATS_QUANT_SEEN_H

#include "libckpt/source.h"

#define QUANT_NONE SIZE_MAX

/* A tensor as it is seen: the first member of a struct that says how it is packed. */
struct quant_seen {
    const char       *name;
    enum ckpt_dtype   dtype;
    struct ckpt_shape shape;
    size_t            codes;    /* tensor of the source beneath */
    bool              packed;   /* false: it is that tensor, under name */
};

/* Elements [start, start + count) of a packed one, in its dtype.  Any thread. */
typedef int quant_seen_fn(struct ckpt_source *src, const void *part, int64_t start,
                          int64_t count, void *dst, struct ckpt_err *err);

/* n structs of size bytes, in the arena of the list that becomes the view's. */
struct quant_seen_list {
    struct ckpt_tensors tensors;
    void               *part;
    size_t              n, size;
    quant_seen_fn      *read;
};

/* With rc, the code of a failure until here, everything is released and rc returned.  Takes src
 * and the list's tensors, on failure too. */
int quant_seen_view(struct ckpt_source **out, struct ckpt_source *src,
                    struct quant_seen_list *list, int rc, struct ckpt_err *err);

/* The tensor named as the first n bytes of base and a tail, or QUANT_NONE. */
size_t quant_beside(const struct ckpt_source *src, const char *base, size_t n, const char *tail);
/* The length of name without tail, or 0 when it does not end in that. */
size_t quant_stem(const char *name, const char *tail);
/* Blocks of so many elements that n take, the last one smaller. */
static inline int64_t quant_blocks(int64_t n, int64_t size)
{
    return n / size + (n % size != 0);
}
/* n floats of a tensor of scales, of any floating dtype, from element start on. */
int quant_read_scales(float *dst, struct ckpt_source *src, size_t i, int64_t start, int64_t n,
                      struct ckpt_err *err);

#endif
