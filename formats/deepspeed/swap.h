/*
 * deepspeed/swap - tensors that stage 3 swapped out to a file system: flat tensors are empty in
 * the optim files, and their elements are stored as raw bytes in separate files.
 *
 *   <tag>/offloaded_tensors/rankRR/<ds_id>.tensor.swp    RR has two digits or more
 *
 * The empty tensor has its ds_id as an attribute: "1_4" of weights, "exp_avg-1_4" of a moment.  A
 * file may be longer than its tensor, up to the next block of the device.  Source: DeepSpeed
 * 0.19.8 runtime/engine.py (save_checkpoint), swap_tensor/optimizer_utils.py.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_SWAP_H
#define CKPT_FORMATS_DEEPSPEED_SWAP_H

#include "formats/deepspeed/parts.h"
#include "libckpt/fragment.h"

/* Open the folder of swapped tensors, if a tag's folder has one. */
int ds_swap_open(struct ds_files *f, struct ckpt_dir *dir, struct ckpt_err *err);
void ds_swap_close(struct ds_swap *s);
/*
 * A fragment of all `numel` elements of rank's tensor t, which is empty.  CKPT_EUNSUPPORTED when
 * the files do not say where the elements are.
 */
int ds_swap_fragment(struct ckpt_fragment **out, struct ckpt_arena *arena,
                     const struct ds_files *f, size_t rank, const struct value_tensor *t,
                     int64_t numel, const char *what, struct ckpt_err *err);

#endif
