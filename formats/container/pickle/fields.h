/*
 * pickle/fields - how many bytes an array has that joblib wrote between the opcodes of a pickle,
 * from the arguments of numpy's dtype and joblib's wrapper.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_FIELDS_H
#define CKPT_FORMATS_CONTAINER_PICKLE_FIELDS_H

#include "formats/container/pickle/stack.h"

/* Also those of a dictionary that a wrapper will be built from. */
struct fields {
    bool    wrapper, dtype, object, unknown;
    bool    aligned;            /* a byte of padding's length, and the padding, are in front */
    int64_t count, width;       /* elements, and bytes of one */
};

/* From the arguments of numpy.dtype: "f8", "U10", "O". */
void fields_of_dtype(struct fields *f, const struct item *args);
/* A key of the wrapper's state and its value. */
void fields_set(struct fields *f, const struct item *key, const struct item *val);
/* False when that is unknown. */
bool fields_bytes(const struct fields *f, int64_t *bytes);

#endif
