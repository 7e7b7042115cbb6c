/*
 * torch/add - values that are a tensor -> entries of a list: tensors, sharded ones of which this
 * file has all, numpy arrays, and tensors that are known and not read.
 */
#ifndef CKPT_FORMATS_TORCH_ADD_H
#define CKPT_FORMATS_TORCH_ADD_H

#include "formats/torch/torch.h"
#include "formats/torch/affine.h"
#include "formats/torch/array.h"

/* Tensor `index` of the list is an array that lies in the pickle, or is quantised. */
struct torch_inner {
    size_t               index;
    struct torch_array   array;
    struct torch_affine *affine;        /* in the list's arena, or NULL */
};

struct torch_adder {
    const struct torch_archive *a;
    struct ckpt_tensors        *list;
    struct ckpt_map            *seen;       /* window -> index: tied tensors */
    enum ckpt_kind              kind;       /* of the tensors added next */
    struct torch_inner         *inner;      /* in rising order; to be freed */
    size_t                      n_inner, cap_inner;
    size_t                      left_out;   /* arrays of elements without a dtype */
};

/* True when v is a tensor, or the record of one. */
bool torch_add_is(const struct value *v);
/*
 * Append v under that name; a window on the bytes of another is its alias.  CKPT_EUNSUPPORTED for
 * one rank's part of a tensor, and for a tensor of which not even the shape is known.
 */
int torch_add(struct torch_adder *to, const char *name, size_t len, const struct value *v,
              struct ckpt_err *err);

#endif
