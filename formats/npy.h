/*
 * npy - numpy's arrays as tensors: one in a .npy file, several in a .npz archive.
 *
 * An .npz file is a zip file of .npy files (container/npy.h); a name without ".npy" is the
 * tensor's, folders included.  A single array is named after its file.  Arrays of objects are
 * refused.
 */
#ifndef CKPT_FORMATS_NPY_H
#define CKPT_FORMATS_NPY_H

#include "libckpt/format.h"

/* Append the array in file to list, under name; its fragment borrows file. */
int npy_read(struct ckpt_tensors *list, struct ckpt_file *file, const char *name,
             struct ckpt_err *err);

/* Whether a file that begins with these bytes is a list or table of integers, perhaps token ids. */
bool npy_is_ids(const unsigned char *head, size_t n);

extern const struct ckpt_format ckpt_format_numpy;

#endif
