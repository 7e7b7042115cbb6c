/*
 * torch/sink - a list of tensors as one archive holding a state dict.
 */
#ifndef CKPT_FORMATS_TORCH_SINK_H
#define CKPT_FORMATS_TORCH_SINK_H

#include "libckpt/format.h"

/* The torch row's create: OrderedDict of name -> tensor, a storage each; tied tensors share. */
int torch_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                 const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
