/*
 * safetensors_header - the JSON text of a header as rows, in one pass and without a tree.
 *
 * Strict JSON of one shape: an object of tensors and, once at most, "__metadata__".  Numbers
 * that matter are whole and not negative; a field, a metadata key or "__metadata__" told twice is
 * refused; members of a tensor that are not known are skipped, as the reference does.  Whether
 * names repeat and whether the rows make sense together is for the caller.
 */
#ifndef CKPT_SAFETENSORS_HEADER_H
#define CKPT_SAFETENSORS_HEADER_H

#include <jansson.h>

#include "libckpt/mem.h"
#include "libckpt/shape.h"

/* A tensor as the header has it, before anything is believed. */
struct safetensors_row {
    const char       *name;             /* name_len bytes, UTF-8 without NUL, not terminated */
    size_t            name_len;
    enum ckpt_dtype   dtype;            /* one that safetensors has */
    struct ckpt_shape shape;
    uint64_t          begin, end;       /* bytes in the data, begin <= end */
};

struct safetensors_header {
    struct safetensors_row *row;        /* in the text's order */
    size_t                  n, cap;
    json_t                 *metadata;   /* text to text, or NULL */
};

/*
 * text is borrowed as long as the rows' names are used; names with escapes are in arena.
 * CKPT_EFORMAT with the byte where it stopped; CKPT_ELIMIT on too many axes, tensors or levels;
 * CKPT_EUNSUPPORTED on a dtype that safetensors does not have.
 */
int safetensors_header_parse(struct safetensors_header *h, struct ckpt_arena *arena,
                             const char *text, size_t len, struct ckpt_err *err);
void safetensors_header_release(struct safetensors_header *h);

/* Place of a dtype in the order that files are sorted by, or SIZE_MAX: not of safetensors. */
size_t safetensors_class(enum ckpt_dtype t);

#endif
