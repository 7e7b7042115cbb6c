/*
 * bnb/parts - which tensors of a source are packed by bitsandbytes, and with what.
 */
#ifndef CKPT_FORMATS_BNB_PARTS_H
#define CKPT_FORMATS_BNB_PARTS_H

#include "formats/quant/seen.h"

enum bnb_how { BNB_NIBBLES, BNB_BYTES, BNB_INT8 };

struct bnb_part {
    struct quant_seen seen;
    enum bnb_how      kind;             /* the rest is that of a packed one */
    size_t            scale;            /* absmax or SCB */
    int64_t           n_scale;
    const float      *map;              /* [16], [256] */
    const float      *nested_map;       /* [256], or NULL: absmax is what it is */
    size_t            nested_scale;
    int64_t           nested_block;
    float             offset;
    int64_t           block;            /* elements that share a scale */
    int64_t           slice;            /* elements after which blocks begin anew */
    int64_t           scales_of_slice;
};

/* Whether some name says that there may be any: one look at each. */
bool bnb_hint(const struct ckpt_source *src);
/* What tensor i is packed as, by its name and those beside it; NULL: it is not. */
const char *bnb_kind(const struct ckpt_source *src, size_t i);
/* All tensors as they are seen, in their order, checked. */
int bnb_parts(struct quant_seen_list *out, struct ckpt_source *src, struct ckpt_err *err);

#endif
