/*
 * npy - numpy's arrays: one in a .npy file, several in a .npz archive.
 *
 *   "\x93NUMPY", major, minor; the length of the header: u16 in version 1.0, u32 in 2.0 and 3.0
 *   header: a Python dictionary as text, padded with blanks and a line end:
 *       {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   elements, row-major, or column-major where fortran_order says so
 *
 * descr is byte order (< > | =), kind (f i u b c) and bytes.  An .npz file is a zip file of such
 * files; a name without ".npy" is the tensor's, folders included.  A lone array is called by its
 * file's name.  Arrays of objects are a pickle inside, which numpy executes: refused.
 * Source: numpy 2.4, lib/_format_impl.py.
 */
#ifndef CKPT_FORMATS_WEIGHTS_NPY_H
#define CKPT_FORMATS_WEIGHTS_NPY_H

#include "libckpt/format.h"

/* Append the array in file to list, under name; its fragment borrows file. */
int npy_read(struct ckpt_tensors *list, struct ckpt_file *file, const char *name,
             struct ckpt_err *err);

/* Whether a file that begins so is a list or table of whole numbers, which may be token ids. */
bool npy_is_ids(const unsigned char *head, size_t n);

extern const struct ckpt_format ckpt_format_numpy;

#endif
