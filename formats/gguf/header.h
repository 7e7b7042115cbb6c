/*
 * gguf/header - the header of a GGUF file: keys with values, tensors.
 *
 * The header is read through a window, so memory holds only keys, short strings, short arrays and
 * tensor rows.  Long arrays (the tokens of a vocabulary) are skipped, and can be read later from
 * their offset in the file.
 */
#ifndef CKPT_FORMATS_GGUF_HEADER_H
#define CKPT_FORMATS_GGUF_HEADER_H

#include <jansson.h>

#include "formats/gguf/types.h"
#include "libckpt/tensor.h"

#define GGUF_MAX_RANK 4             /* GGML_MAX_DIMS */
#define GGUF_KEPT     65536u        /* longer strings are not kept in memory */

enum gguf_kind {
    GGUF_U8, GGUF_I8, GGUF_U16, GGUF_I16, GGUF_U32, GGUF_I32, GGUF_F32, GGUF_BOOL, GGUF_STRING,
    GGUF_ARRAY, GGUF_U64, GGUF_I64, GGUF_F64, GGUF_KINDS
};

struct gguf_pair {
    const char    *key;
    enum gguf_kind kind;
    enum gguf_kind of;              /* of the elements of an array */
    uint64_t       n;               /* elements of an array, bytes of a string */
    uint64_t       at, end;         /* offsets of the value in the file; of an array's elements */
    json_t        *value;           /* NULL for a long value: read it from the file */
};

struct gguf_row {
    const char             *name;
    size_t                  name_len;
    int                     rank;
    int64_t                 dim[GGUF_MAX_RANK]; /* outermost first */
    const struct gguf_type *type;
    uint64_t                offset; /* in the file */
    uint64_t                bytes;
};

struct gguf_header {
    struct ckpt_arena arena;
    uint32_t          version;
    uint32_t          alignment;
    struct gguf_pair *pair;
    size_t            n_pair;
    struct gguf_row  *row;
    size_t            n_row;
};

/* Read and check everything: types known, tensors tile the data with their padding.  Release it
 * on failure too. */
int gguf_header_read(struct gguf_header *h, struct ckpt_file *file, struct ckpt_err *err);
void gguf_header_release(struct gguf_header *h);
/* A pair by its key, or NULL. */
const struct gguf_pair *gguf_pair(const struct gguf_header *h, const char *key);
/* The string under a key when it is kept (at most 64 KiB), or NULL. */
const char *gguf_string(const struct gguf_header *h, const char *key);
/* "string", "u32[3]" */
const char *gguf_kind_name(enum gguf_kind kind);

#endif
