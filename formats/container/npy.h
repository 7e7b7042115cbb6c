/*
 * npy - the header of a numpy array's file.
 *
 *   "\x93NUMPY", major, minor; the length of the header: u16 in version 1.0, u32 in 2.0 and 3.0
 *   header: a Python dictionary as text, padded with blanks and a line end:
 *       {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   elements, row-major, or column-major where fortran_order says so
 *
 * descr is byte order (< > | =), kind (f i u b c and others) and bytes, or a list of named fields.
 * Arrays of objects are a pickle, which numpy executes.
 * Source: numpy 2.4, lib/_format_impl.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_NPY_H
#define CKPT_FORMATS_CONTAINER_NPY_H

#include "libckpt/file.h"
#include "libckpt/tensor.h"

#define NPY_MAGIC "\x93NUMPY"

struct npy {
    enum ckpt_dtype   dtype;            /* CKPT_DTYPE_NONE: elements of another kind */
    bool              swapped, fortran;
    bool              record;           /* elements have named fields */
    bool              object;           /* elements are Python objects, or have such a field */
    struct ckpt_shape shape;
    char              descr[64];        /* "" where elements have fields */
    uint64_t          width;            /* bytes of an element; 0: unknown */
    uint64_t          data;             /* offset of the elements */
};

/* Parse the dictionary alone.  CKPT_EFORMAT, CKPT_ELIMIT; errors do not name the file. */
int npy_parse(struct npy *npy, const char *text, size_t n, struct ckpt_err *err);
/* Read the header of a file.  Errors as above; CKPT_EUNSUPPORTED for a later version. */
int npy_header(struct npy *npy, struct ckpt_file *file, struct ckpt_err *err);

#endif
