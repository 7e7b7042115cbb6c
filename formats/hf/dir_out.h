/*
 * hf/dir_out - writing a model directory: shards cut by size, the index last.
 */
#ifndef CKPT_FORMATS_HF_DIR_OUT_H
#define CKPT_FORMATS_HF_DIR_OUT_H

#include "libckpt/format.h"

/*
 * The row's create.  Side files are copied; config.json's dtype (and torch_dtype, where it has
 * one) is set to the dtype most weights have.  The directory appears whole.
 */
int hf_dir_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                  const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
