/*
 * npy - the header of a numpy array's file.
 *
 *   "\x93NUMPY", major, minor, header bytes (u16 of version 1, u32 of 2 and 3), a Python dict as
 *   text: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }; then the elements, or of
 *   objects a pickle.
 * Source: numpy 2.3 numpy/lib/_format_impl.py.
 */
#ifndef CKPT_FORMATS_CONTAINER_NPY_H
#define CKPT_FORMATS_CONTAINER_NPY_H

#include "libckpt/file.h"

struct npy {
    uint64_t data, end;         /* of the elements; the end of the file when not known */
    bool     object;            /* some element is an object of Python's */
    bool     record;            /* elements have fields: their width is not looked for */
};

/* CKPT_EFORMAT when the header is damaged, or the elements are cut. */
int npy_read(struct npy *npy, struct ckpt_file *file, struct ckpt_err *err);

#endif
