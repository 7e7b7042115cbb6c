/*
 * bnb/optim - write AdamW's state as bitsandbytes' 8-bit optimizers store it.
 *
 * Blocks of 256 elements of the flattened parameter share a scale; a code is the nearest entry of
 * a table of 256, dense near zero, which is stored in the file.  Parameters below 4096 elements
 * stay F32.  The layout is that of bitsandbytes since 0.49.1; older versions read it too, below
 * "__bnb_optimizer_quant_state__". Source: bitsandbytes 0.50.2, optim/optimizer.py.
 */
#ifndef CKPT_FORMATS_BNB_OPTIM_H
#define CKPT_FORMATS_BNB_OPTIM_H

#include "formats/bnb/codes.h"
#include "formats/hf/trainer_files.h"

#define BNB_MIN_8BIT 4096       /* states with at least this many elements are packed */

/* Write an optimizer.pt that AdamW8bit.load_state_dict loads, or, with one state of a parameter in
 * place of two, Lion's.  Takes out.  Parameters are F32 or
 * 8BIT; an 8BIT parameter that has arrays is packed here. */
int bnb_optimizer_file_write(struct ckpt_out *out, const struct adamw_param *param, size_t n_param,
                             const struct adamw_group *group, size_t n_group, int states,
                             int64_t step, const struct adamw_reader *reader, struct ckpt_err *err);

#endif
