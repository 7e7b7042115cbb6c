/*
 * write/sink - rewrite a saved run for another ZeRO stage or number of ranks, so that DeepSpeed
 * can resume from it.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_SINK_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_SINK_H

#include "libckpt/format.h"

/*
 * A directory of `latest` and one folder.  opts->origin is a DeepSpeed source, which stays open;
 * tensors are all of its weights, buffers and moments, in its dtypes.  opts->zero_stage and
 * opts->world_size 0: those of origin.  CKPT_EMISMATCH names the tensor that is superfluous or
 * missing.
 */
int ds_create(struct ckpt_sink **out, const char *path, const struct ckpt_tensors *tensors,
              const struct ckpt_create_opts *opts, struct ckpt_err *err);

#endif
