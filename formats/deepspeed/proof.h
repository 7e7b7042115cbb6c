/*
 * deepspeed/proof - whether the optimizer's weights are those of the model file, as far as a few
 * elements of each rank tell.
 *
 * Of stages 1 and 2 the master of a parameter, rounded to the model's dtype, is what `module` has
 * (true of every version and class that was tried).  A rank's file that another run left in the
 * folder can agree in step, stage, world and sizes; its values do not.
 */
#ifndef CKPT_FORMATS_DEEPSPEED_PROOF_H
#define CKPT_FORMATS_DEEPSPEED_PROOF_H

#include "formats/deepspeed/parts.h"
#include "libckpt/tensor.h"

/*
 * Hold the listed weights against `module`.  CKPT_EFORMAT "mismatch" names the rank whose values
 * are others while another rank's are the same; a warning says it when no rank's are.
 */
int ds_prove_masters(const struct ckpt_tensors *list, const struct ds_files *f,
                     struct ckpt_err *err);

#endif
