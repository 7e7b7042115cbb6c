/*
 * peft/out - writing an adapter directory as PEFT's save_pretrained writes it:
 * adapter_config.json (two blanks, keys sorted, no line end) and adapter_model.safetensors.
 */
#ifndef CKPT_FORMATS_PEFT_OUT_H
#define CKPT_FORMATS_PEFT_OUT_H

#include "libckpt/format.h"

/*
 * The row's create.  opts->info has the "adapter_config"; names and shapes are held against it:
 * CKPT_EUNSUPPORTED when the tensors are no adapter's.  The directory appears whole.
 */
int peft_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
