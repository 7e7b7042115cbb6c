/*
 * write/universal - a saved run as a universal checkpoint, which DeepSpeed loads at any stage and
 * number of ranks (`checkpoint: {load_universal: true}`).
 *
 * ds_to_universal keeps the model file of the stage it read, so that its output loads at that
 * kind of stage alone; here both kinds are written, and states always with their shapes.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_UNIVERSAL_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_UNIVERSAL_H

#include "libckpt/format.h"

/*
 * A directory of `latest_universal` and one folder.  opts->origin and tensors as for ds_create;
 * a file for each parameter and state is open only while it is written.
 */
int universal_create(struct ckpt_sink **out, const char *path,
                     const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                     struct ckpt_err *err);

#endif
