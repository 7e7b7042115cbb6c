/*
 * safetensors_header - the JSON text of a header as rows, in one pass and without a tree; a part
 * of it is in memory at a time.
 *
 * Strict JSON of one shape: an object of tensors and, once at most, "__metadata__".  Numbers
 * that matter are whole and not negative; a field, a metadata key or "__metadata__" told twice is
 * refused; members of a tensor that are not known are skipped, as the reference does.  Whether
 * names repeat and whether the rows make sense together is for the caller.
 */
#ifndef CKPT_FORMATS_HF_SAFETENSORS_HEADER_H
#define CKPT_FORMATS_HF_SAFETENSORS_HEADER_H

#include <jansson.h>

#include "libckpt/file.h"
#include "libckpt/shape.h"

/* A tensor as the header has it, before anything is believed. */
struct safetensors_row {
    const char       *name;             /* name_len bytes, UTF-8 without NUL, not terminated */
    size_t            name_len;
    enum ckpt_dtype   dtype;            /* one that safetensors has */
    struct ckpt_shape shape;
    uint64_t          begin, end;       /* bytes in the data, begin <= end */
};

typedef int safetensors_row_fn(void *ctx, const struct safetensors_row *row, struct ckpt_err *err);

/*
 * Hand each tensor to add, in the text's order; what it is given is valid during the call.  The
 * text is the len bytes of file from its ninth on.  *metadata: text to text, a new reference, or
 * NULL; it may be set on failure too.
 * CKPT_EFORMAT with the byte where it stopped; CKPT_ELIMIT on too many axes or levels;
 * CKPT_EUNSUPPORTED on a dtype that safetensors does not have; what add fails with.
 */
int safetensors_header_read(json_t **metadata, struct ckpt_file *file, uint64_t len,
                            safetensors_row_fn *add, void *ctx, struct ckpt_err *err);

/* Place of a dtype in the order that files are sorted by, or SIZE_MAX: not of safetensors. */
size_t safetensors_class(enum ckpt_dtype t);

#endif
