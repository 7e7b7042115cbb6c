/*
 * deepspeed/proof - check the optimizer's weights against the model file, by a few elements of
 * each rank.
 *
 * In stages 1 and 2 the master of a parameter, rounded to the model's dtype, equals the weight in
 * `module` (in every version and class that was tried).  A rank's file left in the folder by
 * another run can agree in step, stage, world and sizes, but its values differ.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_PROOF_H
#define CKPT_FORMATS_DEEPSPEED_PROOF_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/*
 * Compare the listed weights with `module`.  CKPT_EFORMAT "mismatch" names the rank whose values
 * differ while another rank's agree; when all ranks' differ, a warning.
 */
int ds_prove_masters(const struct ckpt_tensors *list, const struct ds_files *f,
                     struct ckpt_err *err);

#endif
