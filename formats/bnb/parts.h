/*
 * bnb/parts - which tensors of a source bitsandbytes packed, and the parts of each.
 */
#ifndef CKPT_FORMATS_BNB_PARTS_H
#define CKPT_FORMATS_BNB_PARTS_H

#include "formats/quant/seen.h"

enum bnb_how { BNB_NIBBLES, BNB_BYTES, BNB_INT8 };

struct bnb_part {
    struct quant_seen seen;
    enum bnb_how      kind;             /* the fields below are set for a packed one */
    size_t            scale;            /* absmax or SCB */
    int64_t           n_scale;
    const float      *map;              /* [16], [256] */
    const float      *nested_map;       /* [256], or NULL: absmax is not nested */
    size_t            nested_scale;
    int64_t           nested_block;
    float             offset;
    int64_t           block;            /* elements that share a scale */
    int64_t           slice;            /* blocks begin anew after this many elements */
    int64_t           scales_of_slice;
};

/* Whether any name suggests packed tensors; a quick check of each name. */
bool bnb_hint(const struct ckpt_source *src);
/* How tensor i is packed, from its name and those of its parts; NULL: it is not packed. */
const char *bnb_kind(const struct ckpt_source *src, size_t i);
/* List all tensors of the view, in order, and check their parts. */
int bnb_parts(struct quant_seen_list *out, struct ckpt_source *src, struct ckpt_err *err);

#endif
