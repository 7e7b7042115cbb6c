/*
 * write/universal - write a saved run as a universal checkpoint, which DeepSpeed loads at any
 * stage and number of ranks (`checkpoint: {load_universal: true}`).
 *
 * ds_to_universal keeps the model file of the stage it read, so that its output loads only at a
 * stage of that kind; here the files for both kinds are written, and states always have their
 * shapes.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_WRITE_UNIVERSAL_H
#define CKPT_FORMATS_DEEPSPEED_WRITE_UNIVERSAL_H

#include "libckpt/format.h"

/*
 * A directory with `latest_universal` and one folder.  opts->origin and tensors as for ds_create;
 * the file of each parameter and state is open only while it is written.
 */
int universal_create(struct ckpt_sink **out, const char *path,
                     const struct ckpt_tensors *tensors, const struct ckpt_create_opts *opts,
                     struct ckpt_err *err);

#endif
