/*
 * safetensors_header - read the JSON of a header as rows, in one pass and without a tree; only
 * part of the text is in memory at a time.
 *
 * Strict JSON of one shape: an object of tensors and, at most once, "__metadata__".  Relevant
 * numbers are integers and not negative; a repeated field, metadata key or "__metadata__" is
 * refused; unknown members of a tensor are skipped, as the reference does.  The caller checks for
 * repeated names and for consistency between rows.
 */
#ifndef CKPT_FORMATS_HF_SAFETENSORS_HEADER_H
#define CKPT_FORMATS_HF_SAFETENSORS_HEADER_H

#include <jansson.h>

#include "libckpt/file.h"
#include "libckpt/shape.h"

/* A tensor as read from the header, unchecked. */
struct safetensors_row {
    const char       *name;             /* name_len bytes, UTF-8 without NUL, not terminated */
    size_t            name_len;
    enum ckpt_dtype   dtype;            /* a dtype that safetensors has */
    struct ckpt_shape shape;
    uint64_t          begin, end;       /* bytes in the data, begin <= end */
};

typedef int safetensors_row_fn(void *ctx, const struct safetensors_row *row, struct ckpt_err *err);

/*
 * Pass each tensor to add, in the text's order; the row is valid during the call.  The text is
 * the len bytes of file from its ninth on.  *metadata: text to text, a new reference, or NULL; it
 * may be set on failure too.  CKPT_EFORMAT with the byte where it stopped; CKPT_ELIMIT on too
 * many axes or levels; CKPT_EUNSUPPORTED on a dtype that safetensors does not have; what add
 * fails with.
 */
int safetensors_header_read(json_t **metadata, struct ckpt_file *file, uint64_t len,
                            safetensors_row_fn *add, void *ctx, struct ckpt_err *err);

/* Position of a dtype in the order by which tensors are sorted, or SIZE_MAX: not in safetensors. */
size_t safetensors_class(enum ckpt_dtype t);

#endif
