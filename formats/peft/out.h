/*
 * peft/out - write an adapter directory as PEFT's save_pretrained does: adapter_config.json
 * (indented by two, sorted keys, no line end) and adapter_model.safetensors.
 */
#ifndef CKPT_FORMATS_PEFT_OUT_H
#define CKPT_FORMATS_PEFT_OUT_H

#include "libckpt/format.h"

/*
 * The row's create.  opts->info has the "adapter_config", against which names and shapes are
 * checked: CKPT_EUNSUPPORTED when the tensors are not an adapter's.  The directory appears
 * complete.
 */
int peft_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
                const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
