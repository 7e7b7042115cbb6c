/*
 * pickle/fields - the size of an array that joblib wrote between the opcodes of a pickle,
 * computed from the arguments of numpy's dtype and of joblib's wrapper.
 */
#ifndef CKPT_FORMATS_CONTAINER_PICKLE_FIELDS_H
#define CKPT_FORMATS_CONTAINER_PICKLE_FIELDS_H

#include "formats/container/pickle/stack.h"

/* Also used for a dictionary that will be a wrapper's state. */
struct fields {
    bool    wrapper, dtype, object, unknown;
    bool    aligned;            /* preceded by a byte with the padding's length, and the padding */
    int64_t count, width;       /* elements, and bytes of one */
};

/* From the arguments of numpy.dtype: "f8", "U10", "O". */
void fields_of_dtype(struct fields *f, const struct item *args);
/* A key of the wrapper's state and its value. */
void fields_set(struct fields *f, const struct item *key, const struct item *val);
/* False when that is unknown. */
bool fields_bytes(const struct fields *f, int64_t *bytes);

#endif
